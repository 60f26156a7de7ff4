create table incidents (
    id text primary key,
    job text not null,
    opened real not null,
    state text not null,
    body text not null
) strict;
create index incidents_by_job on incidents (job, opened);

create table attempts (
    job text not null,
    number integer not null,
    body text not null,
    primary key (job, number)
) strict;

create table audit (
    id integer primary key,
    at real not null,
    kind text not null,
    detail text not null
) strict;

create table learned (
    job text primary key,
    at real not null,
    body text not null
) strict;
