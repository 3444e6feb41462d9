import { plain, readable } from '../print.js';
import type { Attention } from './attention.js';
import type { Facts } from './facts.js';

function ago(ms: number | null): string {
  if (ms === null) return 'never';
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 7_200_000) return `${String(Math.round(ms / 60_000))} min`;
  return `${String(Math.round(ms / 3_600_000))} h`;
}

function size(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1_000 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power] ?? ''}`;
}

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

/** Facts, then problems, on one screen. */
export function screen(facts: Facts, attention: readonly Attention[]): string {
  const { pending, batches, verifier, checkpoint } = facts;
  const waiting = (count: number, oldest: number | null): string =>
    count === 0 ? 'none' : `${String(count)}, the oldest waiting for ${ago(oldest)}`;
  const text = readable({
    lanes: facts.lanes
      .map(({ environment, open }) => `${environment} ${open ? 'open' : 'locked'}`)
      .join(', '),
    policy: facts.policy ?? 'none active',
    tenants: `${String(facts.tenants_allowlisted)} allowlisted, ${String(facts.api_keys_active)} active API keys`,
    'AEP keys': facts.aep_keys_active.join(', ') || 'none active',
    'worker keys': facts.worker_keys.join(', ') || 'no worker is connected',
    log: `${String(facts.log.leaves)} leaves`,
    alive: facts.programs.map(({ program, alive }) => `${program} ${String(alive)}`).join(', '),
    'last snapshot':
      facts.publication.age_ms === null
        ? 'none known'
        : `published ${ago(facts.publication.age_ms)} ago`,
    'public API':
      facts.public_api.map(({ url, status }) => `${url} ${status}`).join(', ') ||
      'not checked (set PUBLIC_URL)',
    pending: waiting(pending.admissions, pending.oldest_ms),
    batches: waiting(batches.open, batches.oldest_ms),
    verifier: `${String(verifier.lag)} leaves behind, last verdict ${ago(verifier.verified_ms_ago)} ago, scrubbed to ${String(verifier.scrubbed_to)}`,
    'failing leaves': `${String(verifier.failing_leaves)}, and ${String(verifier.voided_leaves)} voided by a compromised key`,
    checkpoint:
      checkpoint === null
        ? 'none signed yet'
        : `${String(checkpoint.tree_size)} leaves, signed ${ago(checkpoint.age_ms)} ago, ${String(checkpoint.lag)} behind`,
    database: size(facts.database.bytes),
    connections: facts.roles
      .map(
        ({ role, login, connections }) =>
          `${role.slice(4)} ${login ? String(connections) : '(no login)'}`,
      )
      .join(', '),
  });
  const lines = text
    .split('\n')
    .map((line) => fold(line, /^.*?\S {2,}/.exec(line)?.[0].length ?? 0))
    .join('\n');
  if (attention.length === 0) return `${lines}\nno problems found\n`;
  const wanted = attention.map(
    ({ what, do: todo }) => `${fold(`! ${plain(what)}`, 2)}\n${fold(`    ${todo}`, 4)}\n`,
  );
  return `${lines}\n${wanted.join('')}`;
}
