create table account (id text primary key, reported boolean not null default false);
create table payment (
  id bigint primary key generated always as identity, sender text not null references account,
  receiver text not null references account, amount numeric(12, 2) not null, at timestamptz not null default now());
-- Debezium needs the old row of each change.
alter table account replica identity full;
alter table payment replica identity full;

insert into account values ('ann', false), ('bob', false), ('cy', false), ('dora', true);
insert into payment (sender, receiver, amount) values ('ann', 'bob', 20), ('dora', 'cy', 900), ('cy', 'ann', 850);
