"""Files are written whole or not at all, by one function."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmosaic import MKLClassifier, load, save
from kernelmosaic.files import njit, write_bytes, write_text

SRC = Path(__file__).parents[1] / "src"


def names(folder):
    return sorted(os.listdir(folder))


def test_one_function_moves_files_to_their_place():
    movers = [
        path.name
        for path in SRC.rglob("*.py")
        if re.search(r"os\.replace|mkstemp|\.part\"", path.read_text())
    ]
    assert movers == ["files.py"]


def test_a_write_that_fails_keeps_the_former_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_keeps_the_former_file_and_names_the_target(tmp_path, full_disk):
    path = tmp_path / "a.txt"
    path.write_text("old")
    full_disk()
    with pytest.raises(OSError, match=r"a\.txt") as caught:
        write_text(path, "new")
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value).endswith(f"{os.strerror(errno.ENOSPC)}: {str(path)!r}")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize("through", ["itself", "a link"])
@pytest.mark.parametrize(
    "write", [lambda path: write_bytes(path, b"x"), lambda path: save(MKLClassifier(), path)]
)
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path, write, through):
    fifo, path = tmp_path / "fifo", tmp_path / "fifo"
    os.mkfifo(fifo)
    if through == "a link":
        path = tmp_path / "link"
        path.symlink_to(fifo)
    with pytest.raises(
        ValueError, match=f"{path.name} is a device, a FIFO or the like and cannot be replaced"
    ):
        write(path)
    assert fifo.is_fifo()
    assert names(tmp_path) == sorted({"fifo", path.name})


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs sockets with a name")
def test_a_socket_is_refused_and_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(ValueError, match="cannot be replaced"):
            write_bytes("s", b"x")
    assert Path("s").is_socket()


@pytest.mark.skipif(not hasattr(os, "mknod"), reason="needs device nodes")
def test_a_device_is_refused_and_stays(tmp_path):
    node = tmp_path / "null"
    try:
        os.mknod(node, 0o600 | 0o020000, os.makedev(1, 3))  # a null device of its own
    except PermissionError:
        pytest.skip("needs the right to make a device node")
    with pytest.raises(ValueError, match="cannot be replaced"):
        write_bytes(node, b"x")
    assert node.is_char_device()


def test_a_model_is_written_through_symbolic_links(tmp_path):
    (tmp_path / "real").mkdir()
    target, link, second = (
        tmp_path / "real" / "m.skops",
        tmp_path / "link.skops",
        tmp_path / "second.skops",
    )
    link.symlink_to(target)
    second.symlink_to(link)
    for C, path in ((2.0, link), (3.0, second)):  # the first finds no file at the end of the link
        save(MKLClassifier(C=C), path)
        assert path.is_symlink()
        assert load(target).C == C
    assert names(tmp_path / "real") == ["m.skops"]
    assert names(tmp_path) == ["link.skops", "real", "second.skops"]


def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises((OSError, ValueError)):
        write_bytes(path, b"x")
    assert path.is_symlink()


#: A process that writes part of a file, says so and waits.
WRITER = """
import os, sys, time
from kernelmosaic.files import write_bytes
def wait(number):
    print("written", flush=True)
    time.sleep(600)
os.fsync = wait
write_bytes(sys.argv[1], b"half of it")
"""


@pytest.fixture
def writer(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "a.txt")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    assert process.stdout.readline() == "written\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_what_a_killed_run_left_is_removed_by_the_next_that_writes_the_file(tmp_path, writer):
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (left,) = names(tmp_path)
    assert left.startswith(".a.txt.")
    write_text(tmp_path / "other.txt", "other")
    assert names(tmp_path) == [left, "other.txt"]
    (tmp_path / ".a.txt.mine.part").write_text("a file of the user")
    write_text(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == [".a.txt.mine.part", "a.txt", "other.txt"]


def test_the_part_of_a_run_at_work_stays(tmp_path, writer):
    (part,) = names(tmp_path)
    write_text(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == sorted([part, "a.txt"])


def test_a_file_is_moved_to_its_place_while_its_part_is_locked(tmp_path, monkeypatch):
    # Once unlocked, the part is a leftover to another run that writes the same file.
    path, move = tmp_path / "a.txt", os.replace

    def move_after_another_write(part, target):
        monkeypatch.setattr(os, "replace", move)
        write_text(path, "another")
        assert path.read_text() == "another"
        move(part, target)

    monkeypatch.setattr(os, "replace", move_after_another_write)
    write_text(path, "mine")
    assert path.read_text() == "mine"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows moves no open files")
def test_every_write_of_several_processes_succeeds(tmp_path):
    code = (
        "import sys; from kernelmosaic.files import write_text\nfor i in range(400):"
        " write_text(sys.argv[1], str(i))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.txt")]
    processes = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SRC)}) for _ in range(3)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "a.txt").read_text() == "399"
    assert names(tmp_path) == ["a.txt"]


@pytest.fixture
def usual_umask():
    former = os.umask(0o022)
    yield
    os.umask(former)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o666, 0o400])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, usual_umask, mode):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(mode)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_the_part_of_a_private_file_is_private_from_the_start(tmp_path, usual_umask, monkeypatch):
    path, modes, create = tmp_path / "a.txt", [], os.open
    write_text(path, "old")
    path.chmod(0o600)

    def note_mode(name, flags, mode=0o777, **options):
        number = create(name, flags, mode, **options)
        if str(name).endswith(".part"):
            modes.append(stat.S_IMODE(os.fstat(number).st_mode))
        return number

    monkeypatch.setattr(os, "open", note_mode)
    write_text(path, "new")
    assert modes == [0o600]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no owners of this kind")
def test_what_a_foreign_group_may_do_is_not_passed_on(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    path.chmod(0o664)
    own = os.fstat
    number_of_another_group = path.stat().st_gid + 1

    def belongs_to_another_group(number):
        fields = list(own(number))
        fields[5] = number_of_another_group
        return os.stat_result(fields)

    def refuse(*owner):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fstat", belongs_to_another_group)
    monkeypatch.setattr(os, "fchown", refuse)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text() == "new"


def double(x):
    return 2 * x


def compile_again(double):
    """Return the result of a function compiled anew, as by another process, and how many cached
    codes were read."""
    compiled = njit(cache=True)(double)
    return compiled(21), sum(compiled.stats.cache_hits.values())


@pytest.fixture
def compiled_folder(tmp_path, monkeypatch):
    config = pytest.importorskip("numba").config
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kernelmosaic" / "compiled"


def flip_one_byte(data):
    place = 2 * len(data) // 3
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: bytes(len(data)),
        lambda data: data[: len(data) // 2],
        flip_one_byte,
    ],
    ids=["empty", "zeros", "half", "one byte"],
)
def test_damaged_files_of_compiled_functions_are_made_anew(compiled_folder, ending, damage):
    assert compile_again(double) == (42, 0)
    assert compile_again(double) == (42, 1)
    (file,) = compiled_folder.rglob(f"*{ending}")
    file.write_bytes(damage(file.read_bytes()))
    assert compile_again(double) == (42, 0)
    assert compile_again(double) == (42, 1)


def test_functions_are_compiled_where_no_cache_can_be_kept(compiled_folder, monkeypatch):
    caching = pytest.importorskip("numba.core.caching")
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    assert compile_again(double) == (42, 0)
    assert not compiled_folder.exists()


def test_functions_run_where_the_disk_takes_no_compiled_code(compiled_folder, monkeypatch):
    caching = pytest.importorskip("numba.core.caching")

    def refuse(*data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", refuse)
    assert compile_again(double) == (42, 0)
