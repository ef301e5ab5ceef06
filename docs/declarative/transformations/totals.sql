CREATE MATERIALIZED VIEW totals AS
SELECT cast(metadata AS string) AS kind, count(*) AS keys, sum(size) AS bytes
FROM files
GROUP BY 1
