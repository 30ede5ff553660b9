"""What is told of a script that is migrated."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


@dataclass
class Report:
    """Lines and texts: what could not be translated, and what the user should know."""

    untranslated: list[tuple[int, str]] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def cannot(self, node: ast.AST, reason: str) -> None:
        """Add what could not be translated."""
        self.untranslated.append((getattr(node, "lineno", 1), reason))

    def note(self, node: ast.AST, text: str) -> None:
        """Add a note."""
        self.notes.append((getattr(node, "lineno", 1), text))
