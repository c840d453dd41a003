-- Hours by device and metric, out of final windows. A run computes the newest day that is there again, and days after it.
{{ config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by='day', on_schema_change='fail') }}

select
    device,
    metric,
    date_trunc('HOUR', window_start) as hour,
    sum(`count`) as readings,
    sum(mean * `count`) / sum(`count`) as mean,
    min(`min`) as lowest,
    max(`max`) as highest,
    count_if(flags != '') as odd_windows,
    day
from {{ source('lake', 'gold') }}
{% if is_incremental() %}
where day >= (select coalesce(max(day), date '1970-01-01') from {{ this }})
{% endif %}
group by device, metric, date_trunc('HOUR', window_start), day
