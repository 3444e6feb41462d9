import { Option } from 'commander';
import { once } from 'node:events';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import * as z from 'zod';
import { isObject, parseStrict } from '../../../protocol/json.js';
import { deny, HOOK_EVENTS, openHook } from '../../adapters/claude-hook.js';
import { openGate } from '../../adapters/gate.js';
import type { AdapterOptions, Admission, GatedCall } from '../../adapters/options.js';
import { type AdmissionStore, openRounds } from '../../adapters/rounds.js';
import { canonicalHash } from '../../canonical.js';
import {
  type CommandSpec,
  hookToken,
  type Invocation,
  isBearer,
  milliseconds,
  port,
  UsageError,
  withKeyFile,
} from '../config.js';
import { errno, readInput } from '../files.js';
import { describe, type Mapping, readMapping } from '../mcp/mapping.js';
import type { JsonObject } from '../mcp/message.js';
import { EXIT, type ExitCode } from '../terminal.js';

interface HookOptions {
  timeout?: number;
  agent: string;
  waitForApproval?: number;
  observe?: true;
  state?: string;
  map?: string;
  listen?: number;
}

const DECISION_TIMEOUT_MS = 10_000;
const BREAKER_MS = 2_000;
/** Age at which the files of calls are deleted; no tool call takes that long. */
const KEPT_MS = 24 * 60 * 60_000;
const MAX_BODY_BYTES = 64 * 1024 * 1024;

export const hookCommand: CommandSpec<HookOptions> = {
  name: 'hook',
  summary: 'Admit the tool calls of Claude Code, as its hook',
  description:
    'Reads the JSON input of a Claude Code hook on standard input, and prints its JSON output. PreToolUse requests an admission, with a hash of the tool input; PostToolUse, PostToolUseFailure and PermissionDenied record the outcome. A call without an admission is denied, with the reason for the model; the permission rules of Claude Code apply to every other call. Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key.\n\n' +
    'With --listen, svc serves HTTP hooks on a loopback port until interrupted. Each request must carry the token in the environment variable SVC_HOOK_TOKEN: Authorization: Bearer TOKEN. A rejected request gets a denial with the status 200, because Claude Code may run the tool after other statuses; with --observe, it gets the status 400.\n\n' +
    'Exits 0 with an output. After a failure exits 2, which blocks the tool, or 1 with --observe. Set "onFailure": "block" on the hook too: Claude Code otherwise runs the tool when a hook cannot start or takes too long.',
  examples: [
    'svc hook --agent my-laptop < hook.json',
    'SVC_HOOK_TOKEN=… svc hook --agent my-laptop --listen 8377',
  ],
  options: [
    new Option('--agent <ID>', 'ID of the agent in proofs').default('claude-code'),
    new Option('--wait-for-approval <SECONDS>', 'wait for required approvals').argParser(
      milliseconds,
    ),
    ['--observe', 'report calls without an admission, and block none'],
    ['--map <FILE>', 'take actions and facts from tool inputs as FILE describes'],
    ['--state <DIR>', 'keep admissions here until the outcome (default: ~/.svc/hooks)'],
    new Option('--listen <PORT>', 'serve HTTP hooks on this loopback port').argParser(port),
  ],
  timeout: `limit the wait for a decision (default: ${String(DECISION_TIMEOUT_MS / 1_000)})`,
  run: hook,
};

async function hook(invocation: Invocation<HookOptions>): Promise<ExitCode> {
  const { options, signal, terminal } = invocation;
  try {
    const mapping = options.map === undefined ? undefined : await readMapping(options.map);
    const gate = openGate(gateOptions(invocation, mapping), 'claude-code');
    if (options.listen !== undefined) {
      await serve(openHook(gate, openRounds(Infinity)), options.listen, invocation);
      return EXIT.success;
    }
    const store = fileStore(options.state ?? join(homedir(), '.svc', 'hooks'));
    terminal.printJson(await openHook(gate, store)(readHook(await readInput('-')), signal));
    return EXIT.success;
  } catch (error) {
    // Exits with 2, the only exit code after which Claude Code does not run the tool; with --observe, it may run.
    terminal.printError(`svc hook: ${(error as Error).message}`);
    return options.observe === true ? EXIT.negative : EXIT.usage;
  }
}

function gateOptions(
  { engine, options, terminal }: Invocation<HookOptions>,
  mapping: Mapping | undefined,
): AdapterOptions {
  const wait = options.waitForApproval;
  const report = (text: string): void => terminal.printError(`svc hook: ${text}`);
  const common = {
    // Disables evidence: the SDK would fetch it after the decision, when this process has ended.
    engine: withKeyFile({ ...engine(), receiptEvidence: false as const }),
    agent: { id: options.agent },
    decisionTimeoutMs: options.timeout ?? DECISION_TIMEOUT_MS,
    breakerMs: BREAKER_MS,
    ...(wait !== undefined && { approval: { waitMs: wait } }),
    ...(mapping !== undefined && {
      describe: ({ tool, arguments: given }: GatedCall) =>
        describe(mapping, tool, given as JsonObject),
    }),
    onOutcomeError: ({ error, tool }: { error: unknown; tool: string }) =>
      report(`${tool}: the outcome may not be recorded: ${(error as Error).message}`),
  };
  if (options.observe !== true) return common;
  return { ...common, mode: 'observe', onNotAdmitted: ({ message }) => report(message) };
}

/** Rejects other events, which could announce a tool call that no output of this command can stop. */
const hookSchema = z.looseObject({
  hook_event_name: z.enum(HOOK_EVENTS),
  tool_name: z.string().exactOptional(),
  // Not z.record, which would drop a member `__proto__` that the tool receives.
  tool_input: z.custom<JsonObject>(isObject).exactOptional(),
  tool_use_id: z.string().exactOptional(),
});

function readHook(bytes: Uint8Array): z.infer<typeof hookSchema> {
  try {
    return hookSchema.parse(parseStrict(bytes));
  } catch (cause) {
    throw new UsageError('the input is not the JSON of a Claude Code hook event', { cause });
  }
}

/** Keeps each admission in a file, because the hook after the tool runs in a separate process. */
function fileStore(directory: string): AdmissionStore {
  const fileOf = (id: string): string => join(directory, `${canonicalHash(id)}.json`);
  return {
    keep: async (id, admission) => {
      try {
        await mkdir(directory, { recursive: true, mode: 0o700 });
        await prune(directory);
        await writeFile(fileOf(id), JSON.stringify(admission), { mode: 0o600 });
      } catch (cause) {
        throw new UsageError(`the admission cannot be stored in ${directory}: ${errno(cause)}`, {
          cause,
        });
      }
    },
    take: async (id) => {
      const text = await readFile(fileOf(id), 'utf8').catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return null;
        throw error;
      });
      if (text === null) return undefined;
      await rm(fileOf(id), { force: true });
      return JSON.parse(text) as Admission;
    },
  };
}

/** Removes the files of calls without a hook after the tool, such as the calls of an ended session. */
async function prune(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!/^[0-9a-f]{64}\.json$/.test(name)) continue;
    const file = join(directory, name);
    // A concurrent hook may remove the file first.
    const found = await stat(file).catch(() => null);
    if (found === null || found.mtimeMs > Date.now() - KEPT_MS) continue;
    await rm(file, { force: true }).catch(() => undefined);
  }
}

async function serve(
  answer: ReturnType<typeof openHook>,
  port: number,
  { options, signal, terminal }: Invocation<HookOptions>,
): Promise<void> {
  const token = hookToken();
  terminal.redactor.protect(token);
  const server = createServer((request, response) => {
    const reply = (status: number, body: object): void => {
      response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
    };
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    readBody(request, token)
      .then((bytes) => answer(readHook(bytes), gone.signal))
      .then((output) => reply(200, output))
      .catch(({ message }: Error) => {
        // A denial has the status 200, because Claude Code may run the tool after a status other than 2xx.
        if (options.observe === true) reply(400, { error: message });
        else reply(200, deny(new Error(`the tool did not run: ${message}`)));
        terminal.printError(`svc hook: ${message}`);
      });
  });
  await once(server.listen(port, '127.0.0.1'), 'listening');
  terminal.printError(`serving hooks on http://127.0.0.1:${String(port)}`);
  if (!signal.aborted) await once(signal, 'abort');
  server.closeAllConnections();
  server.close();
}

async function readBody(request: IncomingMessage, token: string): Promise<Uint8Array> {
  if (!isBearer(request.headers.authorization, token))
    throw new UsageError('the request has a wrong token');
  if (Number(request.headers['content-length'] ?? NaN) <= MAX_BODY_BYTES) return buffer(request);
  throw new UsageError(`expected a body of known length, at most ${String(MAX_BODY_BYTES)} bytes`);
}
