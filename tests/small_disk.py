"""A disk that is soon full."""

import contextlib
import subprocess

from conditions import need

MIB = 1 << 20


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """A real file system of this size."""
    need("loop devices")
    image, mount = folder / "image", folder / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", mount], check=True)
