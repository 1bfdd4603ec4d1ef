"""What MkDocs does beside building pages: files of the repository that pages link to become part of the site,
and so do the sources of the pages, which llms.txt names."""

import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "repository"  # where files from outside docs/ are on the site
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(_linked_files(files)):
        files.append(File.generated(config, f"{FOLDER}/{path}.txt", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links out of docs/ lead to the copies. A folder has no copy: its link becomes its name."""
    here = posixpath.dirname(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        target = _outside(here, match[2])
        if target is None:
            return match[0]
        if (ROOT / target).is_dir():
            return match[1]
        return f"[{match[1]}]({posixpath.relpath(f'{FOLDER}/{target}.txt', here or '.')})"

    return LINK.sub(replace, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    source, site = Path(config.docs_dir), Path(config.site_dir)
    for path in source.rglob("*.md"):
        copy = site / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _linked_files(files: Files) -> set[str]:
    paths: set[str] = set()
    for file in files.documentation_pages():
        here = posixpath.dirname(file.src_uri)
        targets = (_outside(here, match[2]) for match in LINK.finditer(file.content_string))
        paths.update(target for target in targets if target is not None and (ROOT / target).is_file())
    return paths


def _outside(here: str, link: str) -> str | None:
    """The path of a file in the repository, or None where the link stays within docs/."""
    path = posixpath.normpath(posixpath.join("docs", here, link))
    return None if path.startswith("docs/") else path
