import type { ExpectedStatus } from './acts/act.js';

interface Answer {
  lookup?: { matched_on: string | null };
  verification?: { verification_status: string; can_assert_validity: boolean };
}

const ASSERTING = ['VALID', 'PASS', 'VERIFIED', 'TRUST_ESTABLISHED'];

/** A public status: `null` for an unknown id, or a description of an invalid answer. */
async function askPublic(publicUrl: string, path: string): Promise<string> {
  const response = await fetch(`${publicUrl}/api/public/verify/${path}`);
  const { lookup, verification } = (await response.json()) as Answer;
  if (response.status === 404 || lookup?.matched_on === null) return 'null';
  const status = verification?.verification_status;
  if (response.status !== 200 || status === undefined) return String(response.status);
  if (verification?.can_assert_validity === ASSERTING.includes(status)) return status;
  return `${status}, which ${verification?.can_assert_validity === true ? 'asserts' : 'does not'}`;
}

/** Reads the public statuses beside the expected ones. */
export async function readStatuses(
  publicUrl: string,
  wanted: readonly ExpectedStatus[],
): Promise<{ path: string; status: string; said: string }[]> {
  return Promise.all(
    wanted.map(async ({ path, status }) => ({
      path,
      status: String(status),
      said: await askPublic(publicUrl, path).catch(String),
    })),
  );
}
