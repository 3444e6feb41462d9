import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("block", re.findall("```python\n(.*?)```", README.read_text(), re.DOTALL))
def test_an_example_of_the_readme_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(block, {})  # noqa: S102
    assert capsys.readouterr().out in ("VALID\n", "a table for 2\n")
