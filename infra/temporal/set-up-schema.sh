#!/bin/sh
# Creates Temporal's two databases or brings them to this server version's schema. Safe to repeat.
set -eu
SQL_PASSWORD=$(cat /run/secrets/temporal_db_password)
export SQL_PASSWORD
schema=/etc/temporal/schema/postgresql/v12

bring_up_to_date() {
  database=$1
  versions=$2
  tool="temporal-sql-tool --plugin postgres12 --ep $POSTGRES_HOST -p 5432 -u $TEMPORAL_DB_USER --db $database"
  $tool create
  # Fails when a schema is there already; what counts is the update after it.
  $tool setup-schema -v 0.0 || echo "$database has a schema already"
  $tool update-schema -d "$versions"
}

bring_up_to_date temporal "$schema/temporal/versioned"
bring_up_to_date temporal_visibility "$schema/visibility/versioned"
