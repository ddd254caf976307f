"""The views of docs/views.md as a deployment can name them: of in-edges in Python, of out-edges in C++."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[1] / "docs" / "views.md"

_names: dict[str, Any] = {}
for _block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL):
    if "class " in _block:
        exec(re.split(r"\n(?:graph|out_degrees) = ", _block)[0], _names)

DegreeHistogram, OutDegrees = _names["DegreeHistogram"], _names["OutDegrees"]
