"""Label a pool in the browser: `session` is pure, `journal` keeps every answer on disk, `web` is the skin over both."""
