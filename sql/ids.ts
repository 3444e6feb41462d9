/** `proof_id` as Postgres' uuid text. */
export function toUuid(proofId: string): string {
  return `${proofId.slice(0, 8)}-${proofId.slice(8, 12)}-${proofId.slice(12, 16)}-${proofId.slice(16, 20)}-${proofId.slice(20)}`;
}

/** Postgres' uuid text as `proof_id`: 32 lower-case hex characters. */
export function fromUuid(uuid: string): string {
  return uuid.replaceAll('-', '');
}

const PACKAGE = 'pkg_';

/** `package_id` as Postgres' uuid text. */
export function packageUuid(packageId: string): string {
  return toUuid(packageId.slice(PACKAGE.length));
}

/** Postgres' uuid text as `package_id`. */
export function packageIdOf(uuid: string): string {
  return PACKAGE + fromUuid(uuid);
}

const BATCH = 'batch_';

/** `batch_id` as Postgres' uuid text. */
export function batchUuid(batchId: string): string {
  return toUuid(batchId.slice(BATCH.length));
}

/** Postgres' uuid text as `batch_id`. */
export function batchIdOf(uuid: string): string {
  return BATCH + fromUuid(uuid);
}
