#!/usr/bin/env bash
# Installs what the tests in a real browser need: Chromium and npm from Debian where they are missing
# and we are root, and the npm packages of package-lock.json. What cannot be had is said; the tests
# that need it are then skipped, but fail in CI.
set -u
cd "$(dirname "$0")"

missing=()
[ -n "${GEOGP_CHROMIUM:-}" ] || command -v chromium >/dev/null || missing+=(chromium)
command -v npm >/dev/null || missing+=(nodejs npm)
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && apt-get install -qq -y "${missing[@]}" >/dev/null
fi

stamp=node_modules/.package-lock.json
if [ ! -f "$stamp" ] || [ package-lock.json -nt "$stamp" ]; then
  if command -v npm >/dev/null; then
    npm ci --no-audit --no-fund --loglevel=error && touch "$stamp"
  fi
fi

command -v "${GEOGP_CHROMIUM:-chromium}" >/dev/null || echo "no chromium: tests in a browser are skipped" >&2
[ -f "$stamp" ] || echo "no npm packages: tests in a browser are skipped" >&2
exit 0
