"""Does the check of pins find the wheels that pip would find? On a small index, without network."""

from pathlib import Path

import pytest

from recipes.resolve import PLATFORMS, missing, read_pins

LINUX = "manylinux_2_17_x86_64.manylinux2014_x86_64"
FILES = {
    "pure": ["pure-1.0-py3-none-any.whl", "pure-1.0.tar.gz"],
    "only-linux": [f"only_linux-2.1-cp3{minor}-cp3{minor}-{LINUX}.whl" for minor in (11, 12, 13)],
    "stable": [
        f"stable-3.0-cp39-abi3-{platform}.whl"
        for platform in (LINUX, "manylinux_2_28_aarch64", "macosx_11_0_arm64")
    ],
    "too-new": ["too_new-1.0-cp311-cp311-manylinux_2_34_x86_64.whl"],
    "source": ["source-1.0.tar.gz", "source-0.9-py3-none-any.whl"],
    "old": ["old-1.0-py3-none-any.whl"],
}


def page(name: str) -> str:
    asked = ' data-requires-python="&gt;=3.9,&lt;3.13"' if name == "old" else ""
    start = f'<a href="https://host/file#sha256=0"{asked}>'
    links = [f"{start}{file}</a><br/>" for file in FILES[name]]
    return "\n".join(["<html>", *links, "</html>"])


@pytest.fixture
def lacking(tmp_path: Path) -> dict[tuple[str, str], list[str]]:
    pins = "pure==1.0\nonly-linux==2.1\nstable==3.0\ntoo-new==1.0\nsource==1.0\nold==1.0\n"
    (tmp_path / "constraints.txt").write_text(f"# Pins.\n{pins}")
    return missing(read_pins(tmp_path / "constraints.txt"), page)


def test_every_python_and_platform_is_asked_for(lacking: dict[tuple[str, str], list[str]]) -> None:
    assert len(lacking) == 9 and {platform for _, platform in lacking} == set(PLATFORMS)


def test_pins_without_a_wheel_are_named(lacking: dict[tuple[str, str], list[str]]) -> None:
    assert lacking["3.11", "Linux x86-64"] == ["too-new==1.0", "source==1.0"]
    assert lacking["3.12", "macOS arm64"] == ["only-linux==2.1", "too-new==1.0", "source==1.0"]
    assert lacking["3.13", "Linux aarch64"] == [
        "only-linux==2.1", "too-new==1.0", "source==1.0", "old==1.0",
    ]  # fmt: skip
