"""What runs on a device alone: CUDA passes, kernels of many columns, programs and paths of all folds side by side.

The rest of the package imports `_torch_passes` and `folds` where a device is used, and nothing else.
"""
