"""How the benchmarks start Freshet's own processes: in the product's environment, which has none of the peers.

sqlite-utils loads numpy and pandas where it finds them: 80 MB that Freshet does not need.
"""

import os
import subprocess
import sys
from pathlib import Path

from schema.settings import Settings, to_environment

_PRODUCT = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "python"
PYTHON = str(_PRODUCT) if _PRODUCT.exists() else sys.executable


def start(arguments: list[str], settings: Settings, log: Path) -> subprocess.Popen[bytes]:
    """Start Python with Freshet's settings; its output is added to a log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [PYTHON, *arguments], env={**os.environ, **to_environment(settings)}, stdout=output, stderr=output
        )
