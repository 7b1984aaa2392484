"""The compiler's side: asked for by Triton, and never used under its interpreter."""

from __future__ import annotations

from typing import Any

from triton.backends import compiler


class NoCompiler(compiler.BaseBackend):  # type: ignore[misc]
    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "interpreter"

    def parse_options(self, options: Any) -> Any:
        return options

    def add_stages(self, stages: Any, options: Any, *others: Any) -> None:
        """None."""

    def load_dialects(self, context: Any) -> None:
        """None."""

    def get_module_map(self) -> dict[str, Any]:
        return {}

    def pack_metadata(self, metadata: Any) -> Any:
        return metadata

    def get_codegen_implementation(self, *options: Any) -> dict[str, Any]:
        return {}
