{# The table has the columns that the source declares, with their types; it may have more. A row for each that differs. #}
{% test declared_columns(model) %}
{%- if execute -%}
{%- set found = {} -%}
{%- for column in adapter.get_columns_in_relation(model) -%}
    {%- do found.update({column.name: column.dtype}) -%}
{%- endfor -%}
{%- set declared = (graph.sources.values() | selectattr('identifier', 'equalto', model.identifier) | first).columns -%}
{%- for column in declared.values() if found.get(column.name) != column.data_type %}
select '{{ column.name }}' as column_name, '{{ column.data_type }}' as declared, '{{ found.get(column.name, "missing") }}' as found
union all
{%- endfor %}
{%- endif %}
select '' as column_name, '' as declared, '' as found where false
{% endtest %}
