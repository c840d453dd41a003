-- Each device: what it measures, and whether it has been silent for an hour while others were not.
select
    device,
    count(distinct metric) as metrics,
    max(arrival) as last_arrival,
    max(arrival) < (select max(arrival) from {{ source('lake', 'latest') }}) - interval 1 hour as is_silent,
    bool_or(clock != 'ok') as has_wrong_clock
from {{ source('lake', 'latest') }}
where device is not null
group by device
