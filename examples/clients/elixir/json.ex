defmodule Json do
  @moduledoc "JSON for Elixir before 1.18, which has a module `JSON`: enough of it for this example."

  def encode(%{} = map) do
    "{" <> Enum.map_join(map, ",", fn {key, value} -> encode(to_string(key)) <> ":" <> encode(value) end) <> "}"
  end

  def encode(list) when is_list(list), do: "[" <> Enum.map_join(list, ",", &encode/1) <> "]"
  def encode(nil), do: "null"
  def encode(value) when is_number(value) or is_boolean(value), do: to_string(value)

  def encode(text) when is_binary(text) do
    escaped =
      Regex.replace(~r/["\\\x00-\x1f]/, text, fn <<code>> ->
        "\\u" <> String.pad_leading(Integer.to_string(code, 16), 4, "0")
      end)

    "\"" <> escaped <> "\""
  end

  def decode(text) do
    {value, ""} = value(skip(text))
    value
  end

  # Each of these returns what it has read, and the text behind it.
  defp value("{" <> rest), do: members(skip(rest), %{})
  defp value("[" <> rest), do: items(skip(rest), [])
  defp value("\"" <> rest), do: text(rest, "")
  defp value("null" <> rest), do: {nil, skip(rest)}
  defp value("true" <> rest), do: {true, skip(rest)}
  defp value("false" <> rest), do: {false, skip(rest)}

  defp value(text) do
    [number] = Regex.run(~r/\A-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/, text)
    rest = binary_part(text, byte_size(number), byte_size(text) - byte_size(number))

    case Integer.parse(number) do
      {integer, ""} -> {integer, skip(rest)}
      {integer, "e" <> power} -> {String.to_float("#{integer}.0e" <> power), skip(rest)}
      {integer, "E" <> power} -> {String.to_float("#{integer}.0e" <> power), skip(rest)}
      _ -> {String.to_float(number), skip(rest)}
    end
  end

  defp members("}" <> rest, found), do: {found, skip(rest)}
  defp members("," <> rest, found), do: members(skip(rest), found)

  defp members("\"" <> rest, found) do
    {key, ":" <> rest} = text(rest, "")
    {value, rest} = value(skip(rest))
    members(rest, Map.put(found, key, value))
  end

  defp items("]" <> rest, found), do: {Enum.reverse(found), skip(rest)}
  defp items("," <> rest, found), do: items(skip(rest), found)

  defp items(text, found) do
    {value, rest} = value(text)
    items(rest, [value | found])
  end

  defp text("\"" <> rest, found), do: {found, skip(rest)}

  defp text("\\u" <> <<code::binary-size(4), rest::binary>>, found) do
    case {String.to_integer(code, 16), rest} do
      {high, "\\u" <> <<low::binary-size(4), rest::binary>>} when high in 0xD800..0xDBFF ->
        pair = 0x10000 + (high - 0xD800) * 0x400 + String.to_integer(low, 16) - 0xDC00
        text(rest, found <> <<pair::utf8>>)

      {code, rest} ->
        text(rest, found <> <<code::utf8>>)
    end
  end

  defp text(<<"\\", escaped, rest::binary>>, found) do
    text(rest, found <> Map.get(%{?n => "\n", ?t => "\t", ?r => "\r", ?b => "\b", ?f => "\f"}, escaped, <<escaped>>))
  end

  defp text(<<char::utf8, rest::binary>>, found), do: text(rest, found <> <<char::utf8>>)

  defp skip(text), do: String.trim_leading(text)
end
