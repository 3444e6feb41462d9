import { fromUtf8, utf8 } from '../../protocol/bytes.js';
import { parseStrict, type JsonValue } from '../../protocol/json.js';
import { agentEnvelope, executeRequest, SdkError, type BatchItem } from '../index.js';
import { nameOf, readInput } from './input.js';
import { UsageError } from './usage-error.js';

/**
 * The items of a file, one a line, completed and checked: a line that is at fault is told by its
 * number, before anything is sent.
 */
export async function readItems(name: string, tenantId: string): Promise<BatchItem[]> {
  const items = linesOf(name, await readInput(name)).map(([number, line]) => {
    try {
      return itemOf(parseStrict(utf8(line)), tenantId);
    } catch (cause) {
      throw new UsageError(`${nameOf(name)}:${String(number)}: ${(cause as Error).message}`, {
        cause,
      });
    }
  });
  if (items.length === 0)
    throw new UsageError(`${nameOf(name)} has no items: write one a line, as in svc admit --help`);
  return items;
}

function linesOf(name: string, bytes: Uint8Array): [number: number, line: string][] {
  let text: string;
  try {
    text = fromUtf8(bytes);
  } catch (cause) {
    throw new UsageError(`${nameOf(name)} is not UTF-8`, { cause });
  }
  return text
    .split('\n')
    .map((line, at): [number, string] => [at + 1, line])
    .filter(([, line]) => line.trim() !== '');
}

function itemOf(value: JsonValue, tenantId: string): BatchItem {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new SdkError('invalid_input', 'is not a JSON object');
  }
  if (!('kind' in value)) return executeRequest(tenantId, value as never);
  // Drawn anew each time, it would make the same file another admission whenever it is run again.
  for (const member of ['nonce', 'requested_at']) {
    if (!(member in value))
      throw new SdkError('invalid_input', `/${member}: is required in a file`);
  }
  return agentEnvelope(tenantId, value as never);
}
