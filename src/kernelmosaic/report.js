for (const box of document.querySelectorAll(".filter input")) {
  const table = box.closest(".table"), count = table.querySelector("output");
  const rows = [...table.querySelectorAll("tbody tr")];
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.value = `${shown} of ${rows.length}`;
  });
}

const folds = () => document.querySelectorAll("details");
addEventListener("beforeprint", () => {
  for (const fold of folds()) { fold.dataset.was = fold.open; fold.open = true; }
});
addEventListener("afterprint", () => { for (const fold of folds()) fold.open = fold.dataset.was === "true"; });
