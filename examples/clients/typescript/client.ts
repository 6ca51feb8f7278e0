// Calls the tools of examples/tools.py, with nothing but the `fetch` of Node 20 or later.
//
//   ropewalk serve examples/tools.py
//   npm install && npm start

const url = process.env.ROPEWALK_URL ?? "http://127.0.0.1:8080";
const token = process.env.ROPEWALK_TOKEN;

interface Violation {
  field: string;
  description: string;
}

/** Why a call has no result. */
class CallFailed extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly violations: Violation[] = [],
  ) {
    super(message);
  }
}

interface Options {
  /** Cancels the call: the server stops the tool. */
  signal?: AbortSignal;
  /** Seconds that the call may take. */
  timeout?: number;
  /** What the tool reads as `current_task().metadata`. */
  metadata?: Record<string, string>;
  token?: string | undefined;
}

async function post(tool: string, args: object, accept: string, options: Options): Promise<Response> {
  const headers = new Headers({ "Content-Type": "application/json", Accept: accept });
  const shown = "token" in options ? options.token : token;
  if (shown !== undefined) headers.set("Authorization", `Bearer ${shown}`);
  if (options.timeout !== undefined) headers.set("X-Ropewalk-Timeout", String(options.timeout));
  for (const [name, text] of Object.entries(options.metadata ?? {})) headers.set(`X-Ropewalk-Meta-${name}`, text);
  const response = await fetch(`${url}/v1/tools/${tool}`, {
    method: "POST",
    headers,
    body: JSON.stringify(args),
    signal: options.signal ?? null,
  });
  if (!response.ok) throw failure(await response.text());
  return response;
}

function failure(document: string): CallFailed {
  const { error } = JSON.parse(document) as {
    error: { code: string; message: string; violations?: Violation[] };
  };
  return new CallFailed(error.code, error.message, error.violations);
}

/** Calls a tool. */
async function call<Result>(tool: string, args: object, options: Options = {}): Promise<Result> {
  const response = await post(tool, args, "application/json", options);
  return (await response.json()) as Result;
}

/** Yields the items of a tool that streams. Leaving the loop cancels the call. */
async function* stream<Item>(tool: string, args: object, options: Options = {}): AsyncGenerator<Item> {
  const response = await post(tool, args, "text/event-stream", options);
  if (response.body === null) return;
  let waiting = "";
  // Leaving this loop cancels the body, which closes the connection.
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (waiting + text).split("\n\n");
    waiting = events.pop() ?? "";
    for (const event of events) {
      const [name, data] = event.split("\n").map((line) => line.slice(line.indexOf(":") + 2));
      if (name === "error") throw failure(data ?? "");
      yield JSON.parse(data ?? "null") as Item;
    }
  }
}

/** The status of a call that fails, and the fields that are wrong. */
async function refusal(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof CallFailed) return [error.code, ...error.violations.map(({ field }) => field)].join(" ");
    if (error instanceof Error) return error.name;
  }
  return "no failure";
}

console.log("add:", await call<number>("add", { a: 2, b: 3 }));
console.log("greet:", await call<string>("greet", {}, { metadata: { name: "TypeScript" } }));
console.log("wrong arguments:", await refusal(call("add", { a: "two", c: 3 })));
console.log("without a token:", await refusal(call("add", { a: 2 }, { token: undefined })));

const last: number[] = [];
for await (const prime of stream<number>("primes", { above: 99950 })) last.push(prime);
console.log("stream:", last.join(" "));

const first: number[] = [];
for await (const prime of stream<number>("primes", {})) {
  first.push(prime);
  if (first.length === 3) break;
}
console.log("left stream:", first.join(" "));

console.log("deadline:", await refusal(call("wait", { seconds: 600 }, { timeout: 0.2 })));

const controller = new AbortController();
setTimeout(() => controller.abort(), 200);
const cancelled = await refusal(call("wait", { seconds: 600 }, { signal: controller.signal }));
console.log("cancelled:", cancelled === "AbortError" ? "yes" : cancelled);
console.log("add again:", await call<number>("add", { a: 2 }));
