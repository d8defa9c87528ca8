"""Make the pictures of docs/gallery: run the Python blocks of each page, keep the files that they save.

python docs/tools/gallery.py [page …]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402
from pages import read  # noqa: E402  as the tests read them

GALLERY, FIGURES = ROOT / "docs" / "gallery", ROOT / "docs" / "figures" / "gallery"
STYLE = {
    "svg.hashsalt": "netsor", "svg.fonttype": "path", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def main() -> None:
    names = sys.argv[1:] or [page.stem for page in sorted(GALLERY.glob("*.md")) if page.stem != "index"]
    plt.rcParams.update(STYLE)
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # the same picture, the same file
    for name in names:
        begun = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for example in read(GALLERY / f"{name}.md"):
                example.evaluate()
            plt.close("all")
            for picture in Path(folder).glob("*.svg"):
                (FIGURES / picture.name).write_bytes(picture.read_bytes())
        print(f"{name}: {time.process_time() - begun:.1f} s")


if __name__ == "__main__":
    main()
