//! Every statement that runs on the tables, in one place. All names are qualified.

/// The statements for one schema. Texts are also the keys under which a connection remembers what it has prepared.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) place: String,
    pub(crate) place_and_settle: String,
    pub(crate) read: String,
    pub(crate) manifest: String,
    pub(crate) first_manifest: String,
    pub(crate) next_manifest: String,
    pub(crate) put_part: String,
    pub(crate) get_part: String,
    pub(crate) parts: String,
    pub(crate) delete_part: String,
    pub(crate) make_partitions: String,
    pub(crate) drop_partition: String,
    pub(crate) outbox: String,
    pub(crate) delete_outbox: String,
    pub(crate) refuse_outbox: String,
}

impl Statements {
    pub(crate) fn new(quoted_schema: &str) -> Statements {
        let of = |text: &str| text.replace("{schema}", quoted_schema);
        Statements {
            place: of(PLACE),
            place_and_settle: of(PLACE_AND_SETTLE),
            read: of(READ),
            manifest: of(MANIFEST),
            first_manifest: of(FIRST_MANIFEST),
            next_manifest: of(NEXT_MANIFEST),
            put_part: of(PUT_PART),
            get_part: of(GET_PART),
            parts: of(PARTS),
            delete_part: of(DELETE_PART),
            make_partitions: of(MAKE_PARTITIONS),
            drop_partition: of(DROP_PARTITION),
            outbox: of(OUTBOX),
            delete_outbox: of(DELETE_OUTBOX),
            refuse_outbox: of(REFUSE_OUTBOX),
        }
    }
}

/// $1 number, $2 record, $3 tip of the record before, $4 tip. Returns one row, or none if the head does not fit. Writers
/// that race wait for the row of the head, and see it moved. The row says whether a commit waits for a standby now: the
/// setting may change at any time, and a reload of it takes effect between two statements.
const PLACE: &str = "
WITH head AS (
    UPDATE {schema}.millrace_head SET n = $1::bigint, tip = $4::bytea
    WHERE n = $1::bigint - 1 AND tip = $3::bytea RETURNING n
)
INSERT INTO {schema}.millrace_journal (n, record) SELECT n, $2::bytea FROM head
RETURNING current_setting('synchronous_standby_names') <> ''";

/// $5 ids in the outbox: without a row of the head, nothing is joined and nothing deleted.
const PLACE_AND_SETTLE: &str = "
WITH head AS (
    UPDATE {schema}.millrace_head SET n = $1::bigint, tip = $4::bytea
    WHERE n = $1::bigint - 1 AND tip = $3::bytea RETURNING n
), settled AS (
    DELETE FROM {schema}.millrace_outbox o USING head WHERE o.id = ANY ($5::bigint[])
)
INSERT INTO {schema}.millrace_journal (n, record) SELECT n, $2::bytea FROM head
RETURNING current_setting('synchronous_standby_names') <> ''";

/// $1 first number, $2 records, $3 bytes. Sizes are known without reading the bytes of large records. The first record
/// comes whatever its size.
const READ: &str = "
SELECT n, record FROM (
    SELECT n, record, sum(octet_length(record)) OVER (ORDER BY n) AS total, row_number() OVER (ORDER BY n) AS place
    FROM (SELECT n, record FROM {schema}.millrace_journal WHERE n >= $1::bigint ORDER BY n LIMIT $2::bigint) AS next
) AS sized WHERE total <= $3::bigint OR place = 1 ORDER BY n";

const MANIFEST: &str = "
SELECT manifest, version, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM {schema}.millrace_manifest";

/// $1 manifest.
const FIRST_MANIFEST: &str = "
INSERT INTO {schema}.millrace_manifest (version, manifest) VALUES (1, $1) ON CONFLICT DO NOTHING";

/// $1 manifest, $2 the version that it replaces.
const NEXT_MANIFEST: &str = "
UPDATE {schema}.millrace_manifest SET version = version + 1, manifest = $1 WHERE version = $2";

const PUT_PART: &str = "
INSERT INTO {schema}.millrace_parts (name, bytes) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const GET_PART: &str = "SELECT bytes FROM {schema}.millrace_parts WHERE name = $1";

const PARTS: &str = "SELECT name FROM {schema}.millrace_parts";

const DELETE_PART: &str = "DELETE FROM {schema}.millrace_parts WHERE name = $1";

const MAKE_PARTITIONS: &str = "SELECT {schema}.millrace_make_partitions($1)";

const DROP_PARTITION: &str = "SELECT {schema}.millrace_drop_partition($1)";

/// $1 rows, $2 bytes, $3 the id before the first. The first row comes whatever its size.
const OUTBOX: &str = "
SELECT id, topic, key, headers::text, payload::text, event_id FROM (
    SELECT *, sum(pg_column_size(payload) + coalesce(pg_column_size(headers), 0)) OVER (ORDER BY id) AS total,
        row_number() OVER (ORDER BY id) AS place
    FROM (SELECT * FROM {schema}.millrace_outbox WHERE id > $3::bigint ORDER BY id LIMIT $1::bigint) AS next
) AS sized WHERE total <= $2::bigint OR place = 1 ORDER BY id";

const DELETE_OUTBOX: &str = "DELETE FROM {schema}.millrace_outbox WHERE id = ANY ($1::bigint[])";

/// $1 ids, $2 their reasons.
const REFUSE_OUTBOX: &str = "
WITH refused AS (
    DELETE FROM {schema}.millrace_outbox o USING unnest($1::bigint[], $2::text[]) AS r (id, reason) WHERE o.id = r.id
    RETURNING o.id, o.topic, o.key, o.headers, o.payload, o.event_id, r.reason
)
INSERT INTO {schema}.millrace_outbox_refused (id, topic, key, headers, payload, event_id, reason)
SELECT id, topic, key, headers, payload, event_id, reason FROM refused";
