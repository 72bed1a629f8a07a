"""The docs say what the code does: names, kinds, categories, commands, options, links, the example."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from headway import events
from headway.cli.cluster import CLUSTER_COMMANDS
from headway.cli.main import COMMANDS, cli
from headway.cli.model import MODEL_COMMANDS
from headway.ledger.categories import CATEGORIES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headway"
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("**/*.md"), ROOT / "README.md"])


def calls():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield node


def literal(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def error_slugs():
    """Third argument of everything called ...Error with the form of `HeadwayError`."""
    for call in calls():
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if name.endswith("Error") and len(call.args) >= 3 and (slug := literal(call.args[2])):
            yield slug


def fault_names():
    """First argument of ``faults.note`` and ``faults.tell``."""
    for call in calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"note", "tell"} and call.args:
            owner = ast.unparse(call.func.value)
            if owner.endswith("faults") and (name := literal(call.args[0])):
                yield name


def documented(title):
    _, _, section = (DOCS / "errors.md").read_text().partition(f"\n## {title}\n")
    return re.findall(r"^\| `([a-z-]+)` \|", section.split("\n## ")[0], re.MULTILINE)


def test_every_error_has_its_line_and_every_line_its_error():
    names = documented("Errors")
    assert names == sorted(set(names))
    assert names == sorted(set(error_slugs()))


def test_every_fault_has_its_line():
    names = documented("Faults")
    assert names == sorted(set(names))
    assert set(fault_names()) <= set(names)


@pytest.mark.parametrize("kind", events.AnyEvent.__args__, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_and_its_fields_are_in_the_log_schema(kind):
    text = (DOCS / "log.md").read_text()
    tag = kind.__struct_config__.tag
    (row,) = re.findall(rf"^\| `{tag}` \|.*$", text, re.MULTILINE)
    missing = [field for field in kind.__struct_fields__ if f"`{field}`" not in row]
    assert not missing


def test_every_reason_a_log_closes_for_is_in_the_log_schema():
    text = (DOCS / "log.md").read_text()
    assert not [
        name for name in (*events.CLOSE_REASONS, *events.ROWS, *events.SPAN_CATEGORIES) if f"`{name}`" not in text
    ]


def test_every_category_is_in_the_docs_of_the_ledger():
    text = (DOCS / "ledger.md").read_text()
    assert not [line.name for line in CATEGORIES if f"`{line.name}`" not in text]


GROUPS = {"model": MODEL_COMMANDS, "cluster": CLUSTER_COMMANDS}


@pytest.mark.parametrize(
    "command", ["", *COMMANDS, *(f"{group} {name}" for group, names in GROUPS.items() for name in names)]
)
def test_the_reference_is_what_help_prints(command):
    arguments = [*command.split(), "--help"]
    shown = CliRunner().invoke(cli, arguments, prog_name="headway", terminal_width=78).output.rstrip()
    text = (DOCS / "cli.md").read_text()
    assert f"```text\n{shown}\n```" in text
    level = "#" * (1 + len(command.split()))
    assert not command or f"\n{level} headway {command}\n" in text


def test_the_reference_has_no_command_that_is_gone():
    text = (DOCS / "cli.md").read_text()
    assert sorted(re.findall(r"^## headway (\w+)$", text, re.MULTILINE)) == sorted(COMMANDS)
    for group, names in GROUPS.items():
        assert sorted(re.findall(rf"^### headway {group} (\w+)$", text, re.MULTILINE)) == sorted(names)


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


def test_the_readme_shows_the_example_to_the_letter():
    assert f"```python\n{(ROOT / 'examples' / 'train_digits.py').read_text()}```" in (ROOT / "README.md").read_text()


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {re.split(r"[\[<>=~! ]", line)[0] for line in every} - {"headway"}
    text = (DOCS / "dependencies.md").read_text()
    assert not [name for name in sorted(names) if f"`{name}`" not in text]


def test_the_changelog_names_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def python_blocks():
    for page in DOCS.glob("**/*.md"):
        for place, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            yield pytest.param(block, id=f"{page.name}-{place}")


@pytest.mark.parametrize("block", [*python_blocks()])
def test_what_the_docs_show_runs(block, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not any(tmp_path.iterdir())
