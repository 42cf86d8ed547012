"""Label a pool in the browser: `store` keeps answers on disk, `session` serves them, `web` and `server` are HTTP."""
