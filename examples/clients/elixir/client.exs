# Calls the tools of examples/tools.py, with nothing but the standard library of Elixir and Erlang.
#
#   ropewalk serve examples/tools.py
#   elixir client.exs

Code.require_file("json.ex", __DIR__)
{:ok, _} = Application.ensure_all_started(:inets)

defmodule Tools do
  @moduledoc """
  Calls the tools of a server.

  A result is `{:ok, value}`, or `{:error, failure}` with the keys `"code"`, `"message"` and `"violations"`. Options:
  `timeout` in milliseconds, `metadata` (a map of texts), `token`.
  """

  @doc "Calls a tool."
  def call(tool, arguments, options \\ []) do
    {:ok, id} = start(tool, arguments, options)
    await(id)
  end

  @doc "Begins a call."
  def start(tool, arguments, options \\ []), do: request(tool, arguments, ~c"application/json", options, [])

  @doc "Waits for the result of a call that this process has begun."
  def await(id) do
    receive do
      {:http, {^id, {{_, 200, _}, _, body}}} -> {:ok, Json.decode(body)}
      {:http, {^id, {{_, _, _}, _, body}}} -> {:error, Json.decode(body)["error"]}
      {:http, {^id, {:error, :timeout}}} -> {:error, %{"code" => "DEADLINE_EXCEEDED"}}
      {:http, {^id, {:error, reason}}} -> {:error, %{"code" => "UNAVAILABLE", "message" => inspect(reason)}}
    end
  end

  @doc "Cancels a call: its connection is closed, and the server stops the tool."
  def cancel(id), do: :httpc.cancel_request(id)

  @doc "The items of a tool that streams, each when it is asked for. To take no more of them cancels the call."
  def stream(tool, arguments, options \\ []) do
    Stream.resource(fn -> open(tool, arguments, options) end, &next/1, &close/1)
  end

  defp open(tool, arguments, options) do
    {:ok, id} = request(tool, arguments, ~c"text/event-stream", options, stream: {:self, :once})

    receive do
      {:http, {^id, :stream_start, _, pid}} -> {id, pid, ""}
      {:http, {^id, {{_, _, _}, _, body}}} -> raise "#{inspect(Json.decode(body)["error"])}"
      {:http, {^id, {:error, reason}}} -> raise inspect(reason)
    end
  end

  defp next({id, pid, waiting}) do
    # One part at a time, so that a slow reader slows the tool down.
    :httpc.stream_next(pid)

    receive do
      {:http, {^id, :stream, part}} ->
        {events, [waiting]} = (waiting <> part) |> String.split("\n\n") |> Enum.split(-1)
        {Enum.map(events, &item/1), {id, pid, waiting}}

      {:http, {^id, :stream_end, _}} ->
        {:halt, :ended}

      {:http, {^id, {:error, reason}}} ->
        raise inspect(reason)
    end
  end

  defp item("event: item\ndata: " <> text), do: Json.decode(text)
  defp item("event: error\ndata: " <> text), do: raise("#{inspect(Json.decode(text)["error"])}")

  defp close(:ended), do: :ok
  defp close({id, _, _}), do: cancel(id)

  defp request(tool, arguments, accept, options, more) do
    url = System.get_env("ROPEWALK_URL", "http://127.0.0.1:8080")
    token = Keyword.get(options, :token, System.get_env("ROPEWALK_TOKEN"))
    timeout = options[:timeout]

    headers =
      [{~c"accept", accept}] ++
        for({name, text} <- options[:metadata] || %{}, do: {~c"x-ropewalk-meta-#{name}", ~c"#{text}"}) ++
        if(token, do: [{~c"authorization", ~c"Bearer #{token}"}], else: []) ++
        if(timeout, do: [{~c"x-ropewalk-timeout", ~c"#{timeout / 1000}"}], else: [])

    request = {~c"#{url}/v1/tools/#{tool}", headers, ~c"application/json", Json.encode(arguments)}
    # The client waits a little longer than the server, for the server's own answer.
    limits = if(timeout, do: [timeout: timeout + 1000], else: [])
    :httpc.request(:post, request, limits, [sync: false, body_format: :binary] ++ more)
  end
end

# The status of a call that fails, and the fields that are wrong.
refusal = fn
  {:error, failure} -> Enum.join([failure["code"] | Enum.map(failure["violations"] || [], & &1["field"])], " ")
  {:ok, _} -> "no failure"
end

{:ok, sum} = Tools.call("add", %{a: 2, b: 3})
IO.puts("add: #{sum}")

{:ok, greeting} = Tools.call("greet", %{}, metadata: %{name: "Elixir"})
IO.puts("greet: #{greeting}")

IO.puts("wrong arguments: #{refusal.(Tools.call("add", %{a: "two", c: 3}))}")
IO.puts("without a token: #{refusal.(Tools.call("add", %{a: 2}, token: nil))}")

IO.puts("stream: #{Tools.stream("primes", %{above: 99_950}) |> Enum.join(" ")}")
IO.puts("left stream: #{Tools.stream("primes", %{}) |> Enum.take(3) |> Enum.join(" ")}")

IO.puts("deadline: #{refusal.(Tools.call("wait", %{seconds: 600}, timeout: 200))}")

{:ok, id} = Tools.start("wait", %{seconds: 600})
Process.sleep(200)
IO.puts("cancelled: #{if Tools.cancel(id) == :ok, do: "yes", else: "no"}")

{:ok, sum} = Tools.call("add", %{a: 2})
IO.puts("add again: #{sum}")
