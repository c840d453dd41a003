-- Every position that a store gave is in the lake, or was erased on purpose.
select store, minute, made, lost
from {{ source('lake', 'completeness') }}
where lost > 0 and day >= '{{ var("contract_from") }}'
