{# No two rows with the same values of these columns; null is a value like any other. #}
{% test unique_key(model, columns) %}
select {{ columns | join(', ') }}, count(*) as times
from {{ model }}
group by {{ columns | join(', ') }}
having count(*) > 1
{% endtest %}
