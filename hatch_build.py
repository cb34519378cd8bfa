"""The README as a package shows it: away from the repository, relative links and pictures lead nowhere."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, repository: str, version: str) -> str:
    """Return Markdown whose links and pictures are those of a release's files."""

    def link(match: re.Match[str]) -> str:
        picture, label, path = match.groups()
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return LINK.sub(link, text)


class Readme(MetadataHookInterface):
    """Sets ``readme``, from README.md and the address and version in pyproject.toml."""

    def update(self, metadata: dict) -> None:
        """Set what pyproject.toml calls dynamic."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"]["Repository"], metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
