"""The demo's page, as far as it can be checked without a browser."""

import re
from importlib.resources import files

import pytest

PAGE = files("livegnn.demo") / "page"
HTML, SCRIPT, STYLE = (
    (PAGE / name).read_text(encoding="utf-8") for name in ("index.html", "app.js", "style.css")
)


def test_every_element_that_the_script_asks_for_is_on_the_page() -> None:
    asked = set(re.findall(r'\$\("([^"]+)"\)', SCRIPT))
    present = re.findall(r'\bid="([^"]+)"', HTML)
    assert len(present) == len(set(present))
    assert len(asked) > 30
    assert asked <= set(present)


def test_every_element_with_an_id_is_used() -> None:
    present = set(re.findall(r'\bid="([^"]+)"', HTML))
    assert {name for name in present if f'"{name}"' not in SCRIPT and f"#{name}" not in STYLE} == set()


def test_every_colour_that_is_used_is_defined_in_light_and_dark() -> None:
    used = set(re.findall(r"var\((--[a-z]+)\)", STYLE + SCRIPT))
    light, *dark = re.findall(r":root[^{]*\{([^}]*--ground[^}]*)\}", STYLE)
    assert len(dark) == 2  # by the system's preference, and by choice
    for theme in (light, *dark):
        assert used <= set(re.findall(r"(--[a-z]+):", theme))


@pytest.mark.parametrize("text", [HTML, SCRIPT, STYLE], ids=["index.html", "app.js", "style.css"])
def test_the_page_loads_nothing_from_elsewhere(text: str) -> None:
    assert set(re.findall(r"https?://[^'\" )]*|\burl\([^)]*\)|@import", text)) <= {
        "http://www.w3.org/2000/svg"
    }
