"""Which pins of constraints.txt have a wheel for each supported Python and platform?

python -m recipes.resolve [FILE]

Reads PyPI's index (it needs the network, and downloads no wheel) and prints one row per Python and
platform: `all` or the pins that pip would not find there. Exit code 1 if any is missing.
"""

import argparse
import html
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

INDEX = "https://pypi.org/simple"
SECONDS = 60  # for one answer of the index
PYTHONS = ((3, 11), (3, 12), (3, 13))
GLIBC = 28  # manylinux_2_28, and what is older
OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
LINK = re.compile(r"<a [^>]*?href=\"[^\"]*\"([^>]*)>([^<]+\.whl)</a>")
REQUIRES = re.compile(r"data-requires-python=\"([^\"]*)\"")


def linux(machine: str) -> list[str]:
    """The platform tags of a Linux with glibc 2.28."""
    tags = []
    for minor in range(GLIBC, 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in OLD_NAMES:
            tags.append(f"{OLD_NAMES[minor]}_{machine}")
    return tags


PLATFORMS = {
    "Linux x86-64": linux("x86_64"),
    "Linux aarch64": linux("aarch64"),
    "macOS arm64": list(mac_platforms((14, 0), "arm64")),
}


def read_pins(file: Path) -> list[Requirement]:
    """The requirements of a constraints file."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def index_page(name: str) -> str:
    """What PyPI lists of a project."""
    place = f"{INDEX}/{canonicalize_name(name)}/"
    with urllib.request.urlopen(place, timeout=SECONDS) as answer:
        return str(answer.read().decode("utf-8"))


def wheels(pin: Requirement, page: str) -> Iterator[tuple[frozenset[Tag], SpecifierSet]]:
    """The tags of each wheel that a pin allows, and the Pythons that it asks for."""
    for attributes, file in LINK.findall(page):
        try:
            _, version, _, tags = parse_wheel_filename(html.unescape(file))
        except InvalidWheelFilename:
            continue
        if version in pin.specifier:
            asked = REQUIRES.search(attributes)
            yield tags, SpecifierSet(html.unescape(asked[1]) if asked else "")


def supported_tags(python: tuple[int, int], platforms: list[str]) -> set[Tag]:
    """What pip takes with --python-version and --platform."""
    own = cpython_tags(python, platforms=platforms)
    return {*own, *compatible_tags(python, f"cp{python[0]}{python[1]}", platforms)}


def missing(
    pins: list[Requirement], read: Callable[[str], str] = index_page
) -> dict[tuple[str, str], list[str]]:
    """The pins without a wheel, by Python and platform."""
    with ThreadPoolExecutor(8) as pool:
        pages = pool.map(read, [pin.name for pin in pins])
        listed = {str(pin): list(wheels(pin, page)) for pin, page in zip(pins, pages, strict=True)}
    lacking = {}
    for python in PYTHONS:
        version = f"{python[0]}.{python[1]}"
        for platform, names in PLATFORMS.items():
            allowed = supported_tags(python, names)
            lacking[version, platform] = [
                pin
                for pin, files in listed.items()
                if not any(tags & allowed and version in pythons for tags, pythons in files)
            ]
    return lacking


def main(words: list[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("constraints.txt"))
    lacking = missing(read_pins(parser.parse_args(words).file))
    for (python, platform), pins in lacking.items():
        print(f"{python:<6} {platform:<14} {', '.join(pins) or 'all'}")
    sys.exit(any(lacking.values()))


if __name__ == "__main__":
    main()
