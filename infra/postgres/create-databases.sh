#!/bin/sh
# Runs once, when the data volume is empty: a role and a database for Retold, and a role for Temporal.
set -eu
temporal_password=$(cat /run/secrets/temporal_db_password)
retold_password=$(cat /run/secrets/retold_store_password)
psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" \
  -v temporal_password="$temporal_password" -v retold_password="$retold_password" <<'SQL'
CREATE ROLE temporal LOGIN CREATEDB PASSWORD :'temporal_password';
CREATE ROLE retold LOGIN PASSWORD :'retold_password';
CREATE DATABASE retold OWNER retold;
-- A turn never waits this long for a statement or a lock; whoever does has lost it already.
ALTER ROLE retold SET statement_timeout = '30s';
ALTER ROLE retold SET lock_timeout = '5s';
ALTER ROLE retold SET idle_in_transaction_session_timeout = '60s';
SQL
