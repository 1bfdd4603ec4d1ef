"""What makes and runs a TypeScript client: node, and npm to get its packages."""

import shutil

NODE = shutil.which("node") if shutil.which("npm") else None
HOW_TO_GET_NODE = (
    "There is no node or no npm: `make soak` makes no TypeScript client from docs/openapi.json. "
    "apt-get install nodejs npm"
)
