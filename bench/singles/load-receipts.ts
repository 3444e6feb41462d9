import { randomInt } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { executeReceiptSchema, type ExecuteReceipt } from '#protocol/schemas/execute';
import { nativeSha256 } from '#runtime/crypto/node';
import { bodyAt } from './execute-bodies.js';
import { gatherEvidence, type Outside } from '../receipts/receipt-evidence.js';
import { receiptFaults } from '../receipts/receipt-faults.js';

/** What a load left: which bodies it sent, and the file with some of the answers, one a line. */
export interface LoadTrace {
  templates: readonly string[];
  run: string;
  /** Bodies that may have been sent: those from 0 on. */
  sent: number;
  keptFile: string;
}

export interface CheckedReceipts {
  checked: number;
  /** What was found wrong, a line each. */
  wrong: string[];
}

/**
 * Takes some of the receipts that a load got, at random, and verifies each from the outside against
 * the request that it is for. Which request that is, the receipt's hash says: one that is for nothing
 * that was sent is wrong.
 */
export async function checkLoadReceipts(
  outside: Outside,
  trace: LoadTrace,
  { most, patienceMs }: { most: number; patienceMs: number },
): Promise<CheckedReceipts> {
  const receipts = pick(await keptReceipts(trace.keptFile), most);
  const requests = requestsOf(
    trace,
    receipts.map((one) => one.request_hash),
  );
  const wrong: string[] = [];
  for (const receipt of receipts) {
    const faults = await faultsOf(outside, receipt, requests.get(receipt.request_hash), patienceMs);
    if (faults.length > 0) wrong.push(`${receipt.registry_proof_id}: ${faults.join(', ')}`);
  }
  return { checked: receipts.length, wrong };
}

async function keptReceipts(file: string): Promise<ExecuteReceipt[]> {
  const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '');
  return lines.flatMap((line) => {
    // An answer that is no receipt is counted as an answer; here receipts are looked at.
    const { success, data } = executeReceiptSchema.safeParse(JSON.parse(line));
    return success ? [data] : [];
  });
}

function pick<T>(all: readonly T[], most: number): T[] {
  const left = [...all];
  const picked: T[] = [];
  while (picked.length < most && left.length > 0) {
    picked.push(...left.splice(randomInt(left.length), 1));
  }
  return picked;
}

/** Those of the bodies that have one of these hashes, by it. */
function requestsOf(
  { templates, run, sent }: LoadTrace,
  hashes: readonly string[],
): Map<string, JsonValue> {
  const wanted = new Set(hashes);
  const found = new Map<string, JsonValue>();
  for (let n = 0; n < sent && found.size < wanted.size; n += 1) {
    const request = JSON.parse(bodyAt(templates, run, n)) as JsonValue;
    const hash = documentHash(nativeSha256, request);
    if (wanted.has(hash)) found.set(hash, request);
  }
  return found;
}

async function faultsOf(
  outside: Outside,
  receipt: ExecuteReceipt,
  request: JsonValue | undefined,
  patienceMs: number,
): Promise<string[]> {
  if (request === undefined) return ['it is for no request that was sent'];
  try {
    const found = await gatherEvidence(outside, receipt.registry_proof_id, patienceMs);
    return receiptFaults({ ...found, request, receipt, effect: 'ADMIT' }, outside.trust);
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}
