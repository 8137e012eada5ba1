"""Wheels of Python, for an index of the test."""

import base64
import hashlib
import zipfile


def wheel(index, name, version, files, entry_points=""):
    """A wheel in the directory of an index, each package with a page of its own."""
    place = index / name
    place.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    record = "".join(f"{path},sha256={digest(text)},{len(text)}\n" for path, text in files.items())
    file = place / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    (place / "index.html").write_text("".join(f'<a href="{one.name}">{one.name}</a>' for one in place.glob("*.whl")))
