#!/bin/sh
# As the official image's, as far as docker-compose.yml and testcontainers use it: POSTGRES_USER, POSTGRES_PASSWORD or
# POSTGRES_PASSWORD_FILE, POSTGRES_DB, scripts of /docker-entrypoint-initdb.d once, then the server as PID 1.
set -eu

if [ "$(id -u)" = 0 ]; then
  chown postgres:postgres "$PGDATA"
  exec setpriv --reuid postgres --regid postgres --init-groups /bin/sh "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  POSTGRES_USER=${POSTGRES_USER:-postgres}
  export POSTGRES_USER
  password=$(mktemp)
  if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then cat "$POSTGRES_PASSWORD_FILE"; else echo "$POSTGRES_PASSWORD"; fi >"$password"
  initdb --username="$POSTGRES_USER" --pwfile="$password" --encoding=UTF8 --locale=C.UTF-8 \
    --auth-local=trust --auth-host=scram-sha-256 >/dev/null
  rm -f "$password"
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  # While it is being prepared nobody reaches it from elsewhere, and no health check by TCP finds it ready too early.
  pg_ctl -D "$PGDATA" -w -o "-c listen_addresses=''" start >/dev/null
  database=${POSTGRES_DB:-$POSTGRES_USER}
  if [ "$database" != postgres ]; then
    psql -v ON_ERROR_STOP=1 -q -U "$POSTGRES_USER" -d postgres -c "CREATE DATABASE \"$database\""
  fi
  for script in /docker-entrypoint-initdb.d/*.sh; do
    [ ! -f "$script" ] || /bin/sh "$script"
  done
  pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi

exec "$@" -c "listen_addresses=*"
