"""`freshet backup`: a consistent copy of the databases while they are in use."""

from pathlib import Path

from ops.verify import copy_database
from schema.errors import FreshetError
from schema.tables import control_path, current_generation, store_path


def back_up(data: Path, target: Path) -> list[Path]:
    """Copy the control database and the current generation into a new or empty folder; returns the copies' paths.

    The folder is a data folder: a worker started on it goes on from the positions in it. Raises FreshetError where
    there is nothing to copy, or the folder holds something already.
    """
    if not control_path(data).exists():
        raise FreshetError(f"there is no database in {data}: set FRESHET_DATA to the folder of the live one")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FreshetError(f"{target} is not an empty folder: choose another")
    target.mkdir(parents=True, exist_ok=True)
    copy_database(control_path(data), control_path(target))
    generation = current_generation(target)  # the copy's: a replay may take over meanwhile
    copy_database(store_path(data, generation), store_path(target, generation))
    return [control_path(target), store_path(target, generation)]
