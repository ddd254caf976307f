"""The metrics of a process, as Prometheus' own parser reads them."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


def scrape(text: str) -> dict[str, float]:
    """The value of each sample, by its name and its labels in the order of their names: `up`,
    `lag{partition="0",source="orders"}`. A label's value stands as it is, unescaped."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found, f"{name} occurs twice"
            found[name] = sample.value
    return found


def types(text: str) -> dict[str, str]:
    """The type of each metric, by its name, in the order of the text."""
    lines = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len({line[2] for line in lines}) == len(lines), "a metric is described once"
    return {line[2]: line[3] for line in lines}


def documented_everywhere() -> list[str]:
    """The metrics that docs/server.md lists for every process."""
    page = (Path(__file__).parents[1] / "docs" / "server.md").read_text(encoding="utf-8")
    section = page.split("### Metrics of every process\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
