import type { OpenApiOperation } from '../openapi/types.js';

/** What a reader puts in once, so that every example below it works when pasted. */
export const SETUP = `export SVC_URL=http://127.0.0.1:8080
export SVC_API_KEY=svc_sk_…
export SVC_TENANT_ID=demo
export PROOF_ID=… # registry_proof_id of a receipt
export PACKAGE_ID=… # package_id of a trust package
export TOKEN_HASH=… # token_hash of a share token`;

/** Names of shell variables for what stands in a path. */
const IN_PATH: Record<string, string> = {
  proof_id: '$PROOF_ID',
  package_id: '$PACKAGE_ID',
  token_hash: '$TOKEN_HASH',
  artifact_kind: 'certificate',
};

/** A call that works when pasted into a shell. */
export function curlOf(
  method: string,
  path: string,
  { parameters, 'x-scopes': scopes }: OpenApiOperation,
  body?: unknown,
): string {
  const address = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => IN_PATH[name] ?? `$${name}`);
  const versioned = parameters.some(({ name }) => name === 'svc-api-version');
  const lines = [
    `curl -sS${method === 'GET' ? '' : ` -X ${method}`} "$SVC_URL${address}"`,
    ...(scopes.length > 0
      ? ['-H "X-Svc-Api-Key: $SVC_API_KEY"', '-H "X-Svc-Tenant-Id: $SVC_TENANT_ID"']
      : []),
    ...(versioned ? ["-H 'svc-api-version: v1'"] : []),
  ];
  if (body === undefined) return lines.join(' \\\n  ');
  return [
    [...lines, "-H 'Content-Type: application/json'", '--data-binary @- <<JSON'].join(' \\\n  '),
    inShell(body),
    'JSON',
  ].join('\n');
}

/** JSON inside an unquoted here-document, where the shell puts in the reader's own values. */
function inShell(body: unknown): string {
  const text = JSON.stringify(body, null, 2).replaceAll(/[\\$`]/g, '\\$&');
  return text
    .replaceAll(/^( {2}"tenant_id": )"[^"]*"/gm, '$1"$SVC_TENANT_ID"')
    .replaceAll(/^( {2}"(?:parent_)?proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"')
    .replaceAll(/^( {2}"proof_ids": )\[[^\]]*\]/gm, '$1["$PROOF_ID"]')
    .replaceAll(/^( {2}"package_id": )"[^"]*"/gm, '$1"$PACKAGE_ID"');
}
