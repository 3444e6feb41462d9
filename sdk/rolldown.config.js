import { chmod, copyFile, readFile } from 'node:fs/promises';
import { defineConfig } from 'rolldown';

// Bundles the SDK with the part of ../protocol that it uses. Dependencies of package.json stay imports.
const { bin, dependencies } = JSON.parse(
  await readFile(new URL('package.json', import.meta.url), 'utf8'),
);
const packages = Object.keys(dependencies);

/** npm sets the mode on install, but this workspace is built after the install. */
const executable = {
  name: 'executable',
  writeBundle: () =>
    Promise.all(Object.values(bin).map((file) => chmod(new URL(file, import.meta.url), 0o755))),
};
/** npm packs a licence only from the folder of the package. */
const licence = {
  name: 'licence',
  writeBundle: () =>
    copyFile(new URL('../LICENSE', import.meta.url), new URL('LICENSE', import.meta.url)),
};

export default defineConfig({
  input: {
    index: 'index.ts',
    'cli/svc': 'cli/svc.ts',
    testing: 'testing.ts',
    'adapters/index': 'adapters/index.ts',
    'adapters/mcp': 'adapters/mcp.ts',
    'adapters/ai': 'adapters/ai.ts',
    'adapters/langchain': 'adapters/langchain.ts',
    'adapters/openai': 'adapters/openai.ts',
    'adapters/mastra': 'adapters/mastra.ts',
    'adapters/claude': 'adapters/claude.ts',
  },
  platform: 'neutral',
  resolve: { extensionAlias: { '.js': ['.ts'] } },
  external: (id) =>
    id.startsWith('node:') || packages.some((name) => id === name || id.startsWith(`${name}/`)),
  plugins: [executable, licence],
  output: {
    dir: 'dist',
    cleanDir: true,
    format: 'esm',
    chunkFileNames: 'chunks/[name].js',
    sourcemap: true,
  },
  // Every warning fails the build.
  onLog: (_level, log) => {
    throw new Error(log.message);
  },
});
