// A folder beside a copy of this package, in which the package was installed as its README says.

import { execFile, spawn, type ChildProcessByStdio } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Collected } from './collected.js';

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL('../..', import.meta.url));
/** What a checkout does not have. */
const MADE = ['node_modules', 'dist'];

export interface Program {
  child: ChildProcessByStdio<null, Readable, null>;
  lines: Collected<string>;
}

export class FreshFolder {
  readonly #root: string;

  private constructor(root: string) {
    this.#root = root;
  }

  /** Installs this package from a copy beside the folder, and `others` from the cache that `npm ci` filled. */
  static async make(...others: string[]): Promise<FreshFolder> {
    const folder = new FreshFolder(await mkdtemp(join(tmpdir(), 'millrace-fresh-')));
    await cp(PACKAGE, folder.package, { recursive: true, filter: (path) => !MADE.includes(basename(path)) });
    await mkdir(folder.path);
    await folder.npm('init', '-y');
    await folder.npm('install', '../sdk/js', ...others);
    return folder;
  }

  get path(): string {
    return join(this.#root, 'app');
  }

  /** The copy of this package. */
  get package(): string {
    return join(this.#root, 'sdk', 'js');
  }

  async npm(...args: string[]): Promise<string> {
    return this.#execute(this.path, 'npm', args);
  }

  /** Returns what the package's tarball would hold. */
  async packed(): Promise<string[]> {
    const text = await this.#execute(this.package, 'npm', ['pack', '--dry-run', '--json', '--ignore-scripts']);
    const [tarball] = JSON.parse(text) as { files: { path: string }[] }[];
    return tarball?.files.map(({ path }) => path) ?? [];
  }

  async write(name: string, text: string): Promise<string> {
    const path = join(this.path, name);
    await mkdir(join(path, '..'), { recursive: true });
    await writeFile(path, text);
    return path;
  }

  /** Runs a tool of the package's own `node_modules`, and returns what it prints. */
  tool(name: string, ...args: string[]): Promise<string> {
    return this.#execute(this.path, process.execPath, [join(this.package, 'node_modules', name), ...args]);
  }

  start(file: string, env: NodeJS.ProcessEnv): Program {
    const child = spawn(process.execPath, [file], {
      cwd: this.path,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const lines = new Collected<string>();
    createInterface(child.stdout).on('line', (line) => lines.push(line));
    return { child, lines };
  }

  async remove(): Promise<void> {
    await rm(this.#root, { recursive: true });
  }

  async #execute(cwd: string, command: string, args: string[]): Promise<string> {
    try {
      const quiet = command === 'npm' ? ['--prefer-offline', '--no-audit', '--no-fund'] : [];
      return (await run(command, [...quiet, ...args], { cwd, maxBuffer: 64 << 20 })).stdout;
    } catch (error) {
      const { stdout, stderr } = error as { stdout?: string; stderr?: string };
      throw new Error(`${args.join(' ')}: ${String(error)}\n${stdout}\n${stderr}`, { cause: error });
    }
  }
}
