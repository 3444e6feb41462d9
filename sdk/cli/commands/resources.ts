import { Option } from 'commander';
import { rm, truncate, writeFile } from 'node:fs/promises';
import { HASH_PATTERN } from '../../../protocol/schemas/primitives.js';
import { isBatchId, isPackageId, isProofId } from '../../../protocol/ids.js';
import { API_KEY_ID_PATTERN, SCOPES } from '../../../protocol/schemas/api-keys.js';
import { EFFECTS, type ArtifactKind, ARTIFACT_KINDS } from '../../../protocol/status.js';
import * as sdk from '../../index.js';
import { withoutUndefined } from '../../options.js';
import { type CommandSpec, type Invocation, NEEDS_ENGINE, UsageError } from '../config.js';
import { createFile, errno, hashOfFile } from '../files.js';
import { EXIT, type ExitCode, row } from '../terminal.js';

type ListOptions = Omit<sdk.ProofFilter, 'bound'> & { bound?: 'true' | 'false'; limit?: string };

type List = (engine: sdk.EngineOptions, filter: sdk.ProofFilter) => AsyncIterable<object>;

const LISTS: Record<string, List> = {
  proofs: sdk.listProofsHttp,
  batches: sdk.listBatchesHttp,
  packages: sdk.listPackagesHttp,
  'share-tokens': sdk.listShareTokensHttp,
  keys: sdk.listApiKeysHttp,
  approvers: sdk.listApproversHttp,
  overlays: sdk.listOverlaysHttp,
};

const TEXT_FILTERS = {
  action: 'proofs of this action',
  status: 'proofs with this verification status',
  lane: 'proofs of this request type: execute or agent',
  intent: 'proofs of this intent id',
  agent: 'proofs of this agent id',
  tool: 'proofs of this tool',
  run: 'proofs of this run of the agent',
  parent: 'proofs with this parent proof, such as the outcomes of an admission',
  batch: 'proofs of this batch',
  from: 'proofs accepted at this time or later: RFC 3339 in UTC with milliseconds',
  to: 'proofs accepted before this time',
};

export const listCommand: CommandSpec<ListOptions> = {
  name: 'list',
  summary:
    'List proofs, batches, packages, share tokens, API keys, approvers or overlays, newest first',
  description: `WHAT is ${Object.keys(LISTS).join(', ')}; default proofs. Filters apply to proofs only. --json prints one object per line. ${NEEDS_ENGINE}`,
  examples: [
    'svc list --agent support-agent-7 --effect DENY --limit 20',
    'svc list --parent 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --json',
    'svc list keys',
  ],
  argument: '[WHAT]',
  options: [
    ['--limit <N>', 'stop after N items'],
    new Option('--effect <EFFECT>', 'proofs with this effect').choices(EFFECTS),
    new Option('--bound <BOUND>', 'whether the key was restricted to the agent').choices([
      'true',
      'false',
    ]),
    ...Object.entries(TEXT_FILTERS).map(
      ([name, meaning]) => [`--${name} <${name.toUpperCase()}>`, meaning] as const,
    ),
  ],
  run: list,
};

async function list({
  argument: what = 'proofs',
  options,
  engine,
  json,
  terminal,
}: Invocation<ListOptions & { intent?: string }>): Promise<ExitCode> {
  const { limit, bound, effect } = options;
  const texts = Object.keys(TEXT_FILTERS) as (keyof typeof TEXT_FILTERS)[];
  const given = texts.map((name) => [name === 'intent' ? 'intent_id' : name, options[name]]);
  const filter = withoutUndefined({
    ...Object.fromEntries(given),
    effect,
    bound: bound && bound === 'true',
  }) as sdk.ProofFilter;
  if (!Object.hasOwn(LISTS, what)) {
    throw new UsageError(`${what} is not a list: give one of ${Object.keys(LISTS).join(', ')}`);
  }
  if (what !== 'proofs' && Object.keys(filter).length > 0) {
    throw new UsageError('filters apply to proofs only');
  }
  if (limit !== undefined && !/^[1-9][0-9]{0,8}$/.test(limit)) {
    throw new UsageError('--limit takes a number, as in --limit 20');
  }
  let left = limit === undefined ? Infinity : Number(limit);
  for await (const item of LISTS[what]!(engine(), filter)) {
    if (json) terminal.printJson(item);
    else terminal.print(columns(item));
    if (--left === 0) break;
  }
  return EXIT.success;
}

const IDS = [
  'token_hash',
  'package_id',
  'key_id',
  'overlay_id',
  'registration_hash',
  'proof_id',
  'batch_id',
];

/** The members of an item, without nulls; the id that other commands take comes first. */
function columns(item: object): string {
  const id = IDS.find((name) => name in item);
  return Object.entries(item)
    .filter(([, value]) => value !== null)
    .sort(([left], [right]) => Number(right === id) - Number(left === id))
    .map(([name, value]) =>
      typeof value === 'string' ? value : `${name}=${JSON.stringify(value)}`,
    )
    .join('  ');
}

const kindOption = (meaning: string): Option =>
  new Option('--kind <KIND>', meaning).choices(ARTIFACT_KINDS);

const expiresOption = new Option(
  '--expires <TIME>',
  'expire at this time: RFC 3339 in UTC with milliseconds',
);

export const showCommand: CommandSpec<{ agent?: string; kind?: ArtifactKind }> = {
  name: 'show',
  summary: 'Show a proof, run, batch, package or revocation as stored by the engine',
  description: `ID is a proof id, batch id or package id. With --agent, ID is the id of a run of this agent. With --kind, ID is a proof id, and the command shows the revocation of this artifact of the proof. ${NEEDS_ENGINE}`,
  examples: [
    'svc show 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc show 019aa2c1d0007000b1b2b3b4b5b6b7b8 --agent support-agent-7',
    'svc show 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --kind certificate',
  ],
  argument: '<ID>',
  options: [
    ['--agent <AGENT>', 'show the run with this ID, of this agent'],
    kindOption('show the revocation of this artifact'),
  ],
  run: async (invocation) => printDocument(invocation, await read(invocation)),
};

async function read(
  invocation: Invocation<{ agent?: string; kind?: ArtifactKind }>,
): Promise<object> {
  const { argument: id, options } = invocation;
  const { agent, kind } = options;
  const engine = invocation.engine();
  if (agent !== undefined) return (await sdk.readRunHttp(engine, { run: id, agent })).response;
  if (kind !== undefined)
    return sdk.readRevocationHttp(engine, { proof_id: id, artifact_kind: kind });
  if (isProofId(id)) return (await sdk.readProofHttp(engine, { proof_id: id })).response;
  if (isBatchId(id)) return sdk.readBatchHttp(engine, { batch_id: id });
  if (isPackageId(id)) return sdk.readPackageHttp(engine, { package_id: id });
  throw new UsageError(`${id} is neither a proof id nor the id of a batch or package`);
}

/** Prints a document, and returns the exit code of success. */
export function printDocument(
  { json, terminal }: Pick<Invocation, 'json' | 'terminal'>,
  document: object,
): ExitCode {
  if (json) terminal.printJson(document);
  else {
    for (const [name, value] of Object.entries(document)) {
      if (name === 'schema_version') continue;
      terminal.print(...row(name, typeof value === 'string' ? value : JSON.stringify(value)));
    }
  }
  return EXIT.success;
}

type RevokeOptions = { kind?: ArtifactKind; reason?: string; actor?: string };

export const revokeCommand: CommandSpec<RevokeOptions> = {
  name: 'revoke',
  summary: 'Revoke an artifact of a proof, a share token or an API key, permanently',
  description: `ID is a proof id, the hash of a share token (\`svc list share-tokens\`) or the id of an API key (\`svc list keys\`). Each artifact depends on those before it, in the order proof, passport, certificate, trust: --kind revokes that artifact and those after it. Reason and actor stay private: the log has their hash. ${NEEDS_ENGINE}`,
  examples: [
    'svc revoke 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --kind certificate --reason "wrong day" --actor compliance@acme.example',
    'svc revoke a1b2c3d4e5f6',
  ],
  argument: '<ID>',
  options: [
    kindOption('the artifact to revoke'),
    ['--reason <TEXT>', 'reason for the revocation'],
    ['--actor <TEXT>', 'person or system that revokes'],
  ],
  run: async (invocation) => {
    const { argument: id, engine, options } = invocation;
    const { kind, reason, actor } = options;
    if (isProofId(id)) {
      if (kind === undefined || reason === undefined || actor === undefined) {
        throw new UsageError('revoking an artifact of a proof needs --kind, --reason and --actor');
      }
      const input = { proof_id: id, artifact_kind: kind, reason, actor };
      return printDocument(invocation, await sdk.revokeArtifactHttp(engine(), input));
    }
    if ((kind ?? reason ?? actor) !== undefined) {
      throw new UsageError('--kind, --reason and --actor need a proof id');
    }
    if (HASH_PATTERN.test(id)) await sdk.revokeShareTokenHttp(engine(), { token_hash: id });
    else if (API_KEY_ID_PATTERN.test(id)) await sdk.revokeApiKeyHttp(engine(), { key_id: id });
    else
      throw new UsageError(
        `${id} is neither a proof id, the hash of a share token nor the id of an API key`,
      );
    return printDocument(invocation, { revoked: id });
  },
};

export const shareCommand: CommandSpec<{ kind?: ArtifactKind; expires?: string }> = {
  name: 'share',
  summary: 'Create a share token, which shows one artifact or one package to anyone who has it',
  description: `ID is a proof id or a package id. The token is printed once, because the service stores only its hash; \`svc revoke\` takes the hash. After exit code 3 or 130 a token may exist that was not printed: look in \`svc list share-tokens\` for one created at that time, and revoke it. ${NEEDS_ENGINE}`,
  examples: [
    'svc share 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --kind certificate',
    'svc share pkg_019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --expires 2027-01-01T00:00:00.000Z',
  ],
  argument: '<ID>',
  options: [kindOption('the artifact of the proof (default: proof)'), expiresOption],
  run: async (invocation) => {
    const { argument: id, engine, options } = invocation;
    const { kind, expires } = options;
    const expiry = expires === undefined ? {} : { expires_at: expires };
    if (isPackageId(id) && kind !== undefined) throw new UsageError('a package has no --kind');
    const input = isPackageId(id)
      ? ({ artifact_kind: 'package', package_id: id, ...expiry } as const)
      : { artifact_kind: kind ?? ('proof' as const), proof_id: id, ...expiry };
    return printDocument(invocation, await sdk.createShareTokenHttp(engine(), input));
  },
};

export const packageCommand: CommandSpec = {
  name: 'package',
  summary: 'Create a package: one public id for 1 to 100 admissions',
  description: `The same proofs in the same order return the same package. ${NEEDS_ENGINE}`,
  examples: ['svc package 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f 019aa2c1e0a17d2e9b4f6a7c8d9e0f1a'],
  argument: '<PROOF_ID...>',
  run: async (invocation) => {
    const { args, engine } = invocation;
    return printDocument(invocation, await sdk.createPackageHttp(engine(), { proof_ids: args }));
  },
};

interface KeyOptions {
  scope: string[];
  agent?: string;
  action?: string[];
  tool?: string[];
  environment?: 'sandbox' | 'live';
  expires?: string;
  out: string;
}

/** More than any key has. */
const RESERVED_BYTES = 256;

export const createKeyCommand: CommandSpec<KeyOptions> = {
  name: 'create-key',
  summary: 'Create an API key, for example one for each agent',
  description: `Writes the key to a new file with the mode 0600. The options restrict the key to an agent, to actions, tools and an environment; in a pattern, * matches any characters. After exit code 3 or 130 a key may exist that is in no file: look in \`svc list keys\` for one created at that time, and revoke it. ${NEEDS_ENGINE} The key needs the scope keys.`,
  examples: [
    'svc create-key --scope admit --agent support-agent-7 --tool "refunds.*" -o support-agent-7.key',
  ],
  options: [
    new Option('--scope <SCOPE...>', 'what the key may do').choices(SCOPES).makeOptionMandatory(),
    ['--agent <AGENT>', 'only for this agent id'],
    ['--action <PATTERN...>', 'only for these actions'],
    ['--tool <PATTERN...>', 'only for these tools'],
    new Option('--environment <NAME>', 'only while the tenant is in this environment').choices([
      'sandbox',
      'live',
    ]),
    expiresOption,
    new Option('-o, --out <FILE>', 'write the key to this new file').makeOptionMandatory(),
  ],
  run: async (invocation) => {
    const { engine, options } = invocation;
    const { scope, agent, action, tool, environment, expires, out } = options;
    const restriction = withoutUndefined({
      agent_id: agent,
      actions: action,
      tools: tool,
      environment,
    });
    const input = withoutUndefined({
      scopes: scope,
      restriction: Object.keys(restriction).length > 0 ? restriction : undefined,
      expires_at: expires,
    }) as sdk.ApiKeyInput;
    // Creates the file first, with as many bytes: a key that cannot be written, as on a full disk, would be lost.
    await createFile(out, ' '.repeat(RESERVED_BYTES), 0o600);
    let created: sdk.CreatedApiKey;
    try {
      created = await sdk.createApiKeyHttp(engine(), input);
    } catch (error) {
      // The next attempt needs this name: it does not overwrite a file.
      await rm(out, { force: true });
      throw error;
    }
    const { api_key: key, ...document } = created;
    const line = `${key}\n`;
    try {
      await writeFile(out, line, { flag: 'r+', flush: true });
      await truncate(out, line.length);
    } catch (cause) {
      await rm(out, { force: true }).catch(() => undefined);
      const { key_id: id } = document;
      const message = `the API key ${id} was created but not stored, because ${out} cannot be written (${errno(cause)}): run svc revoke ${id}`;
      throw new Error(message, { cause });
    }
    return printDocument(invocation, { ...document, file: out });
  },
};

export const hashCommand: CommandSpec = {
  name: 'hash',
  summary: 'Hash the JSON value in a file, in the form that envelopes and proofs use',
  description:
    'FILE has one JSON value; - reads standard input. Prints the SHA-256 of its RFC 8785 form, as in arguments_hash, result_hash and request_hash. Sends no request.',
  examples: [`echo '{"amount":480}' | svc hash -`],
  argument: '<FILE>',
  run: async ({ argument, terminal, json }) => {
    const hash = await hashOfFile(argument);
    if (json) terminal.printJson({ hash });
    else terminal.print(hash);
    return EXIT.success;
  },
};
