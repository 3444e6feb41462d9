import { Option } from 'commander';
import { randomBytes } from 'node:crypto';
import { openGate } from '../../adapters/gate.js';
import type { CommonOptions } from '../../adapters/options.js';
import { type AgentRun, openRun } from '../../adapters/run.js';
import type { SdkError } from '../../errors.js';
import type { EngineOptions } from '../../options.js';
import {
  type CommandSpec,
  type Invocation,
  mcpEnvironment,
  milliseconds,
  port,
  UsageError,
  withKeyFile,
} from '../config.js';
import { listenForHosts } from '../mcp/http-host.js';
import { HttpServer } from '../mcp/http-server.js';
import { readMapping } from '../mcp/mapping.js';
import type { Connection } from '../mcp/message.js';
import { Relay, type RelayOptions } from '../mcp/relay.js';
import { openStdioHost, startServer } from '../mcp/stdio.js';
import { EXIT, type ExitCode } from '../terminal.js';

/** The limit is short, because the host waits for the decision. */
const TIMEOUT_MS = 5_000;
/** Time limit for the close of a run: hosts kill a proxy that does not exit. */
const CLOSE_TIMEOUT_MS = 10_000;
/** After a call that did not reach the engine, further calls fail at once for this time. */
const BREAKER_MS = 2_000;

export interface McpOptions {
  agent: string;
  run?: true;
  timeout?: number;
  listen?: number;
  map?: string;
  observe?: true;
  waitForApproval?: number;
}

export const mcpOptions = [
  new Option('--agent <ID>', 'agent id in the proofs').default('svc-mcp'),
  new Option('--map <FILE>', 'JSON file that maps arguments of tools to actions and facts'),
  new Option(
    '--wait-for-approval <SECONDS>',
    'wait for a required approval, and report progress to the host',
  ).argParser(milliseconds),
  new Option('--observe', 'request decisions, but run every call at once'),
  new Option('--run', 'number the requests of each session as a run, and close it at the end'),
];

export const mcpTimeout = `limit the wait for a decision (default: ${String(TIMEOUT_MS / 1_000)})`;

export const mcpCommand: CommandSpec<McpOptions> = {
  name: 'mcp',
  summary: 'Admit every tool call between an MCP host and an MCP server',
  description:
    'TARGET is the command of a server, after --, or the URL of a server. Needs SVC_ENGINE_URL, SVC_TENANT_ID and SVC_API_KEY_FILE. A call runs only after an ADMITTED receipt; the model reads every rejection as a failed tool. Everything except tool calls passes unchanged. The server gets no SVC_* variables; SVC_MCP_SERVER_TOKEN is the bearer token for a URL.\n\n' +
    'Exits 0 after the host has disconnected, and 1 after the server has ended.',
  examples: [
    'svc mcp -- npx -y @modelcontextprotocol/server-filesystem /srv/data',
    'svc mcp --map map.json --wait-for-approval 300 https://mcp.example/mcp',
    'SVC_MCP_LISTEN_TOKEN=… svc mcp --listen 8931 -- node server.js',
  ],
  argument: '<TARGET...>',
  options: [
    ...mcpOptions,
    new Option('--listen <PORT>', 'serve hosts over HTTP on this loopback port').argParser(port),
  ],
  timeout: mcpTimeout,
  run,
};

async function run(invocation: Invocation<McpOptions>): Promise<ExitCode> {
  const { args, options, signal, terminal } = invocation;
  const log = (text: string): void => terminal.printError(`svc mcp: ${text}`);
  const environment = mcpEnvironment();
  const records = new Set<Promise<unknown>>();
  const { engineUrl, apiKey, tenantId } = invocation.engine();
  // Without an abort signal: outcomes are still recorded after the host has ended.
  const engine = withKeyFile({ engineUrl, apiKey, tenantId, receiptEvidence: false });
  const closing = withKeyFile({ ...engine, timeoutMs: CLOSE_TIMEOUT_MS });
  const proxy: ProxyOptions = {
    gate: openMcpGate(invocation, engine, log, records),
    openRun: options.run && (() => openRun({ engine: closing, agent: { id: options.agent } })),
    mapping: options.map === undefined ? { tools: {} } : await readMapping(options.map),
    connect: connector(args, environment),
    howToApprove: (proofId) => {
      const page = new URL(`/approve#${proofId}`, engineUrl).href;
      return `open ${page}, or run svc approve ${proofId} --key FILE`;
    },
    log,
  };
  const ended =
    options.listen === undefined
      ? await serveHost(openStdioHost(process.stdin, process.stdout), proxy)
      : await listen(options.listen, proxy, environment.listenToken, signal);
  // Waits until every outcome is recorded, or reported as lost.
  await Promise.all(records);
  if (ended === 'server') log('the MCP server ended');
  return ended === 'server' ? EXIT.negative : EXIT.success;
}

function openMcpGate(
  { options }: Invocation<McpOptions>,
  engine: EngineOptions,
  log: (text: string) => void,
  records: Set<Promise<unknown>>,
) {
  const { agent, observe, timeout = TIMEOUT_MS, waitForApproval: waitMs } = options;
  const common: CommonOptions = {
    engine,
    agent: { id: agent },
    decisionTimeoutMs: timeout,
    breakerMs: BREAKER_MS,
    ...(waitMs !== undefined && {
      approval: {
        waitMs,
        onPending: (pending) => (pending.call.context as (one: object) => void)(pending),
      },
    }),
    waitUntil: (record) => {
      records.add(record);
      void record.finally(() => records.delete(record));
    },
    onOutcomeError: ({ proofId, error, envelope }) => {
      const why = error instanceof Error ? error.message : 'unknown error';
      log(`the outcome of ${proofId} may not be recorded: ${why}: ${JSON.stringify(envelope)}`);
    },
  };
  const onNotAdmitted = ({ message }: SdkError): void => log(message);
  const mode = observe === true ? ({ mode: 'observe' } as const) : {};
  return openGate({ ...common, ...mode, onNotAdmitted }, 'mcp');
}

function connector(
  target: readonly string[],
  { serverEnv, serverToken }: ReturnType<typeof mcpEnvironment>,
): () => Promise<Connection> {
  const [first = ''] = target;
  if (!/^https?:\/\//i.test(first)) {
    return () =>
      startServer(target, serverEnv).catch((cause: unknown) => {
        throw new UsageError(`${first} cannot be run: ${(cause as Error).message}`, { cause });
      });
  }
  if (target.length > 1 || !URL.canParse(first))
    throw new UsageError('TARGET must be one valid URL, or a command after --');
  const url = new URL(first);
  const isLocal = ['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname);
  if (serverToken !== undefined && url.protocol !== 'https:' && !isLocal) {
    throw new UsageError('SVC_MCP_SERVER_TOKEN is a secret: TARGET must be https or local');
  }
  return () => Promise.resolve(new HttpServer(url, serverToken));
}

async function listen(
  port: number,
  proxy: ProxyOptions,
  given: string | undefined,
  signal: AbortSignal,
): Promise<'host'> {
  const token = given ?? randomBytes(24).toString('base64url');
  const { log } = proxy;
  const serve = async (host: Connection): Promise<void> => {
    const ended = await serveHost(host, proxy).catch((error: Error) => error.message);
    if (ended !== 'host') log(`a session ended: ${ended}`);
  };
  const listener = await listenForHosts({ port, token, serve });
  log(`listens on ${listener.url}`);
  if (given === undefined) log(`bearer token of this process: ${token}`);
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
  await listener.close();
  return 'host';
}

interface ProxyOptions extends Omit<RelayOptions, 'run' | 'toHost' | 'toServer'> {
  connect: () => Promise<Connection>;
  /** Opens the run of a session; undefined if sessions have no run. */
  openRun: (() => AgentRun) | undefined;
}

/** Serves one host until the host or the server ends. Returns which one ended. */
async function serveHost(
  host: Connection,
  { connect, openRun, ...options }: ProxyOptions,
): Promise<'host' | 'server'> {
  const server = await connect();
  const run = openRun?.();
  const relay = new Relay({ ...options, run, toHost: host.send, toServer: server.send });
  const ended = await Promise.race([
    host.read(relay.host).then(() => 'host' as const),
    server.read(relay.server).then(() => 'server' as const),
  ]);
  if (ended === 'host') relay.stopAdmitting();
  // Ends the server first: results that it sends while it ends still count.
  await server.close();
  await relay.close();
  await run
    ?.close()
    .catch((error: Error) => options.log(`run ${run.id} may be open: ${error.message}`));
  await host.close();
  return ended;
}
