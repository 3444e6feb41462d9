import { isUnavailable } from '#sql/db/errors';
import { activeAepKeys } from './aep-keys.js';
import type { AddCommand, Admin, Outcome } from './command.js';
import { plain, readable } from './print.js';
import { attentionFor, type Attention } from './status/attention.js';
import { checkPublicApi, readFacts, type Facts } from './status/facts.js';

export function addStatusCommand(add: AddCommand): void {
  add(
    'status',
    'Show the state of the whole service; exit code 0 healthy, 1 with problems or unchecked parts, 2 database unreachable',
    '--json',
    showStatus,
  );
}

async function showStatus({ database, statusConfig }: Admin): Promise<Outcome> {
  try {
    const sql = await database();
    const publicApi = await checkPublicApi(statusConfig());
    const facts = await readFacts(sql, await activeAepKeys(sql), publicApi);
    const attention = attentionFor(facts);
    return {
      document: { status: attention.length === 0 ? 'well' : 'attention', attention, ...facts },
      text: screen(facts, attention),
      failed: attention.length > 0,
    };
  } catch (error) {
    if (!isUnavailable(error)) throw error;
    const what = 'the database cannot be reached';
    const todo = 'is it running, and is DATABASE_URL right?';
    return {
      document: { status: 'unreachable', attention: [{ what, do: todo }] },
      text: `! ${what}\n    ${todo}\n`,
      unreachable: true,
    };
  }
}

/** Facts, then problems, on one screen. */
function screen(facts: Facts, attention: readonly Attention[]): string {
  const { pending, batches, verifier, checkpoint, publication } = facts;
  const waiting = (count: number, oldest: number | null): string =>
    count === 0 ? 'none' : `${count}, the oldest waiting for ${ago(oldest)}`;
  const text = readable({
    lanes: facts.lanes
      .map((one) => `${one.environment} ${one.open ? 'open' : 'locked'}`)
      .join(', '),
    policy: facts.policy ?? 'none active',
    tenants: `${facts.tenants_allowlisted} allowlisted, ${facts.api_keys_active} active API keys`,
    'AEP keys': facts.aep_keys_active.join(', ') || 'none active',
    'worker keys': facts.worker_keys.join(', ') || 'no worker is connected',
    log: `${facts.log.leaves} leaves`,
    alive: facts.programs.map(({ program, alive }) => `${program} ${alive}`).join(', '),
    'last snapshot':
      publication.age_ms === null ? 'none known' : `published ${ago(publication.age_ms)} ago`,
    'public API':
      facts.public_api.map(({ url, status }) => `${url} ${status}`).join(', ') ||
      'not checked (set PUBLIC_URL)',
    pending: waiting(pending.admissions, pending.oldest_ms),
    batches: waiting(batches.open, batches.oldest_ms),
    verifier: `${verifier.lag} leaves behind, last verdict ${ago(verifier.verified_ms_ago)} ago, scrubbed to ${verifier.scrubbed_to}`,
    'failing leaves': `${verifier.failing_leaves}, and ${verifier.voided_leaves} voided by a compromised key`,
    checkpoint:
      checkpoint === null
        ? 'none signed yet'
        : `${checkpoint.tree_size} leaves, signed ${ago(checkpoint.age_ms)} ago, ${checkpoint.lag} behind`,
    database: size(facts.database.bytes),
    connections: facts.roles
      .map(
        ({ role, login, connections }) => `${role.slice(4)} ${login ? connections : '(no login)'}`,
      )
      .join(', '),
  });
  const lines = text
    .split('\n')
    .map((line) => fold(line, /^.*?\S {2,}/.exec(line)?.[0].length ?? 0))
    .join('\n');
  const problems = attention.map(
    ({ what, do: todo }) => `${fold(`! ${plain(what)}`, 2)}\n${fold(`    ${todo}`, 4)}\n`,
  );
  return `${lines}\n${problems.join('') || 'no problems found\n'}`;
}

function ago(ms: number | null): string {
  if (ms === null) return 'never';
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

const size = (bytes: number): string =>
  new Intl.NumberFormat('en', {
    notation: 'compact',
    style: 'unit',
    unit: 'byte',
    unitDisplay: 'narrow',
    maximumFractionDigits: 1,
  }).format(bytes);

const WIDTH = 80;

/** Wraps a line between words, with a hanging indent. */
function fold(line: string, indent: number): string {
  const lines = [''];
  for (const word of line.split(/(?<=\S )(?=\S)/)) {
    const last = lines.at(-1) ?? '';
    if (last.trim() !== '' && (last + word).trimEnd().length > WIDTH) {
      lines.push(' '.repeat(indent) + word);
    } else lines[lines.length - 1] = last + word;
  }
  return lines.map((one) => one.trimEnd()).join('\n');
}
