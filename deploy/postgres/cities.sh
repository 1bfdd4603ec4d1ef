#!/bin/sh
# A role and a database of its own for each city, closed to the others. Run by the image when the volume is new;
# once more does no harm, and adds what is new.
set -eu
while IFS=: read -r CITY PASSWORD; do
  export CITY PASSWORD
  psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --username=postgres --dbname=postgres <<'SQL'
\getenv city CITY
\getenv password PASSWORD
select format('create role %I login', :'city')
  where not exists (select from pg_roles where rolname = :'city') \gexec
select format('create database %I owner %I', :'city', :'city')
  where not exists (select from pg_database where datname = :'city') \gexec
alter role :"city" password :'password';
revoke all on database :"city" from public;
SQL
done </tmp/cities
