"""Reads the arrays of an `.npz` file. Objects in it, which NumPy keeps as pickles, are not loaded."""

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.lib.npyio import NpzFile

from livegnn.errors import FileFormatError

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from numpy.typing import NDArray

_IDS: Final = ("src", "dst", "ids")


def read_arrays(path: Path) -> "dict[str, Shaped[NDArray[np.generic], '...']]":
    """All arrays by name. Raises `FileFormatError`; `OSError` if the file cannot be opened."""
    with open(path, "rb") as file:
        try:
            content = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            said = "neither" if "pickle" in str(error) else error  # NumPy advises to load it as a pickle
            raise FileFormatError(f"{path} must be a checkpoint or an .npz file, got {said}") from error
        if not isinstance(content, NpzFile):
            raise FileFormatError(
                f"{path} must be a checkpoint or an .npz file, got a single array (.npy): write several with "
                "np.savez(path, src=src, dst=dst)"
            )
        return {name: _read_one(path, content, name) for name in content.files}


def _read_one(path: Path, content: NpzFile, name: str) -> "Shaped[NDArray[np.generic], '...']":
    try:
        return content[name]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            ids = f"{name}.astype(str) if it is text, {name}.astype('int64') if it is whole numbers"
            raise FileFormatError(
                f"{path} must hold arrays of numbers or text, got Python objects in {name!r}, as pandas "
                f"makes them: save {ids if name in _IDS else f'{name}.astype(float)'}"
            ) from error
        raise FileFormatError(f"{path} must hold arrays that can be read, got {name!r}: {error}") from error
