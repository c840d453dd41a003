-- Each store and day: how much was made, and which share came live.
select
    store,
    day,
    sum(made) as made,
    sum(recovered) as recovered,
    sum(lost) as lost,
    try_divide(cast(sum(live) as double), sum(made)) as share_live
from {{ source('lake', 'completeness') }}
group by store, day
