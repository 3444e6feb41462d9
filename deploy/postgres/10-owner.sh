#!/bin/sh
# Runs once, when the database is created. The owner can create the programs' roles but is not a
# superuser. Only the migration connects as the owner. In the locale C, no index depends on the image's libraries.
set -eu

password=$(sed -nE 's#^postgres://svc_owner:([A-Za-z0-9_-]+)@.*$#\1#p' "$OWNER_URL_FILE")
if [ -z "$password" ]; then
  echo "$OWNER_URL_FILE holds no URL of svc_owner" >&2
  exit 1
fi

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<SQL
create role svc_owner login createrole password '$password';
create database svc owner svc_owner encoding 'UTF8' locale 'C' template template0;
SQL
