"""A database's schema as lines of text, in an order of their own, so that two of them can be compared."""

from __future__ import annotations

import asyncpg

from cronwell.store.postgres.migrate import MIGRATIONS

# Each yields one column of text; what PostgreSQL would print of a definition is left to PostgreSQL.
_QUERIES = (
    # tables and partitions, with storage options and the way they are cut
    """
    select format(
        'table %s kind=%s persistence=%s options=%s partitioned=%s bounds=%s',
        c.relname, c.relkind, c.relpersistence, coalesce(array_to_string(array(
            select option from unnest(c.reloptions) as option order by option
        ), ','), '-'), coalesce(pg_get_partkeydef(c.oid), '-'), coalesce(pg_get_expr(c.relpartbound, c.oid), '-')
    )
    from pg_class as c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
    """,
    """
    select format(
        'column %s.%s %s collation=%s null=%s default=%s identity=%s generated=%s storage=%s compression=%s',
        c.relname, a.attname, format_type(a.atttypid, a.atttypmod), coalesce(l.collname, '-'), not a.attnotnull,
        coalesce(pg_get_expr(d.adbin, d.adrelid), '-'), a.attidentity, a.attgenerated, a.attstorage, a.attcompression
    )
    from pg_attribute as a
    join pg_class as c on c.oid = a.attrelid
    left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
    left join pg_collation as l on l.oid = a.attcollation
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
    """,
    # not-null constraints are told by their columns; PostgreSQL 18 keeps them here as well
    """
    select format('constraint %s on %s: %s valid=%s', o.conname, c.relname, pg_get_constraintdef(o.oid), o.convalidated)
    from pg_constraint as o
    join pg_class as c on c.oid = o.conrelid
    where c.relnamespace = 'public'::regnamespace and o.contype <> 'n'
    """,
    """
    select format('index %s valid=%s', pg_get_indexdef(i.indexrelid), i.indisvalid)
    from pg_index as i
    join pg_class as c on c.oid = i.indexrelid
    where c.relnamespace = 'public'::regnamespace
    """,
    """
    select format('enum %s: %s', t.typname, string_agg(e.enumlabel, ', ' order by e.enumsortorder))
    from pg_type as t
    join pg_enum as e on e.enumtypid = t.oid
    where t.typnamespace = 'public'::regnamespace
    group by t.typname
    """,
    """
    select 'function ' || replace(pg_get_functiondef(p.oid), E'\\n', ' | ')
    from pg_proc as p
    where p.pronamespace = 'public'::regnamespace
    """,
    """
    select format(
        'policy %s on %s for %s to %s using %s check %s', p.policyname, p.tablename, p.cmd, p.roles, p.qual, p.with_check
    )
    from pg_policies as p
    """,
    """
    select format('security of %s: rows=%s forced=%s', c.relname, c.relrowsecurity, c.relforcerowsecurity)
    from pg_class as c
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relrowsecurity
    """,
    """
    select format('grant %s on %s to %s', g.privilege_type, g.table_name, g.grantee)
    from information_schema.role_table_grants as g
    where g.grantee like 'cronwell%'
    """,
    """
    select format('grant %s on %s.%s to %s', g.privilege_type, g.table_name, g.column_name, g.grantee)
    from information_schema.column_privileges as g
    where g.grantee like 'cronwell%' and g.table_name = 'tenants'
    """,
    "select 'trigger ' || pg_get_triggerdef(oid) from pg_trigger where not tgisinternal",
    "select format('extension %s', extname) from pg_extension",
)


async def lines(connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    """Everything that a migration can have made, one line each."""
    return sorted([row[0] for query in _QUERIES for row in await connection.fetch(query)])


def declared() -> str:
    """The schema as it is declared for reading."""
    folder = MIGRATIONS.parent / "schema"
    return "\n".join(
        (folder / name).read_text()
        for name in (
            "tables.sql",
            "cluster.sql",
            "limits.sql",
            "dependencies.sql",
            "tenants.sql",
            "audit.sql",
            "long_work.sql",
            "throttling.sql",
            "secrets.sql",
            "alerts.sql",
        )
    )
